package ai.mobileft;

/** Gets tokens as they come, in the thread that asked for them. */
public interface TokenListener {
  /** Whether to go on. */
  boolean onToken(long token);
}
