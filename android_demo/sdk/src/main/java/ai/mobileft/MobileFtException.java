package ai.mobileft;

/** A failure of the runtime, described in one line: a file, the value of an option, or the memory. */
public class MobileFtException extends RuntimeException {
  private static final long serialVersionUID = 1;

  MobileFtException(String message) {
    super(message);
  }
}
