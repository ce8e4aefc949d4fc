package ai.mobileft;

/** Receives a text in pieces, in the thread that asked for it. */
public interface TextListener {
  /** Receives a piece. Returns whether to continue. */
  boolean onText(String piece);
}
