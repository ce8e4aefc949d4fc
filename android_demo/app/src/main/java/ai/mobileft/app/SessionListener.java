package ai.mobileft.app;

import ai.mobileft.TrainingListener;

/** Receives the states of a {@link TrainingSession}, in the session's thread. */
public interface SessionListener extends TrainingListener {
  /** {@code text} is the reason for WAITING or PAUSED (sent again if it changes) or FAILED; "" for other states. */
  void onState(SessionState state, String text);
}
