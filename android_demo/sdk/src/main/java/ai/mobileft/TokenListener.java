package ai.mobileft;

/** Receives tokens, in the calling thread. */
public interface TokenListener {
  /** Receives a token. Returns whether to continue. */
  boolean onToken(long token);
}
