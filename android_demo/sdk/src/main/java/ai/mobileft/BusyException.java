package ai.mobileft;

/** Another call on the same object is in progress. This call did nothing. */
public final class BusyException extends IllegalStateException {
  private static final long serialVersionUID = 1;

  BusyException(String message) {
    super(message);
  }
}
