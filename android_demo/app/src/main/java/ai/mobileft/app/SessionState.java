package ai.mobileft.app;

/** Where a {@link TrainingSession} stands. The last three are final. */
public enum SessionState {
  /** It has not trained yet, as the policy does not allow it. */
  WAITING,
  RUNNING,
  /** All is saved, and memory is free, until the policy allows it again. */
  PAUSED,
  /** All steps are made. */
  DONE,
  /** What was saved until then is there: once the cause is gone, another session goes on from it. */
  FAILED,
  /** By the user; what there is, is saved. */
  STOPPED
}
