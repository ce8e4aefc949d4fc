package ai.mobileft.app;

/** The state of a {@link TrainingSession}. The last three are final. */
public enum SessionState {
  /** It has not trained yet, because the policy does not allow it. */
  WAITING,
  RUNNING,
  /** It has saved what it can and freed its memory, until the policy allows training again. */
  PAUSED,
  /** All steps are done. */
  DONE,
  /** An error ended it. Another session can go on from what was saved after the cause is removed. */
  FAILED,
  /** The user stopped it. What can be saved is saved. */
  STOPPED
}
