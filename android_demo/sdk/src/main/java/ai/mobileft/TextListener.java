package ai.mobileft;

/** Receives a text in pieces, in the calling thread. */
public interface TextListener {
  /** Receives a piece. Returns whether to continue. */
  boolean onText(String piece);
}
