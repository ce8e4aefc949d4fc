package ai.mobileft;

/** What the runtime refuses or fails at, in its one line: a file, an option's value, the memory. */
public class MobileFtException extends RuntimeException {
  private static final long serialVersionUID = 1;

  MobileFtException(String message) {
    super(message);
  }
}
