package ai.mobileft;

/**
 * Training ended early with a checkpoint, because it was cancelled or the memory limit was lowered. Another {@link
 * Trainer} of the same files with {@link TrainingFiles#resume()} continues from there.
 */
public final class TrainingStoppedException extends MobileFtException {
  private static final long serialVersionUID = 1;

  TrainingStoppedException(String message) {
    super(message);
  }
}
