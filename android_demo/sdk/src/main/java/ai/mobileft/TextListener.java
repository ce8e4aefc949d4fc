package ai.mobileft;

/** Gets a text piece by piece as it comes, in the thread that asked for it. */
public interface TextListener {
  /** Whether to go on. */
  boolean onText(String piece);
}
