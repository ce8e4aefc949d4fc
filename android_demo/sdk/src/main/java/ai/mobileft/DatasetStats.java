package ai.mobileft;

/** The result of tokenizing rows. */
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

  /** Rows that were too long and were truncated. */
  public long getTruncated() {
    return values[4];
  }

  /** Rows left out because nothing to learn remained. */
  public long getDropped() {
    return values[5];
  }

  /** Malformed rows left out; always 0 unless the option "on_bad_row" is "skip". */
  public long getBad() {
    return values[6];
  }
}
