package ai.mobileft.app;

import ai.mobileft.TrainingListener;

/** Hears of a {@link TrainingSession}, in its own thread. */
public interface SessionListener extends TrainingListener {
  /** {@code text}: why it is WAITING or PAUSED, anew where that changes, or how it FAILED; empty for other states. */
  void onState(SessionState state, String text);
}
