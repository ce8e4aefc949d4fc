package ai.mobileft;

/** What became of rows when they were written as tokens. */
public final class DatasetStats {
  private final long[] values;

  DatasetStats(long[] values) {
    this.values = values;
  }

  /** Rows read. */
  public long getRows() {
    return values[0];
  }

  /** Sequences written. */
  public long getSequences() {
    return values[1];
  }

  /** Tokens written. */
  public long getTokens() {
    return values[2];
  }

  /** Tokens that are learned. */
  public long getTargetTokens() {
    return values[3];
  }

  /** Rows that lost their end, being too long. */
  public long getTruncated() {
    return values[4];
  }

  /** Rows left out, as nothing to learn remained. */
  public long getDropped() {
    return values[5];
  }

  /** Rows left out, as they cannot be used; with the option "on_bad_row" set to "skip". */
  public long getBad() {
    return values[6];
  }
}
