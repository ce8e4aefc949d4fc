package ai.mobileft;

/**
 * Training ended early and is saved: it was cancelled, or the memory limit was lowered. Another {@link Trainer} of the
 * same files with {@link TrainingFiles#resume()} goes on from there.
 */
public final class TrainingStoppedException extends MobileFtException {
  private static final long serialVersionUID = 1;

  TrainingStoppedException(String message) {
    super(message);
  }
}
