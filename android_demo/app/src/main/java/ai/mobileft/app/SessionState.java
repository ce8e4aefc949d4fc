package ai.mobileft.app;

/** The state of a {@link TrainingSession}. The last three are final. */
public enum SessionState {
  /** It has not trained yet, because the policy does not allow it. */
  WAITING,
  RUNNING,
  /** It has written a checkpoint and freed its memory, until the policy allows training again. */
  PAUSED,
  /** All steps are done. */
  DONE,
  /** An error ended it. Another session can resume from the last checkpoint after the cause is removed. */
  FAILED,
  /** The user stopped it. A checkpoint is written. */
  STOPPED
}
