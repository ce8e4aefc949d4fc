package ai.mobileft;

/** Receives tokens, in the thread that asked for them. */
public interface TokenListener {
  /** Receives a token. Returns whether to continue. */
  boolean onToken(long token);
}
