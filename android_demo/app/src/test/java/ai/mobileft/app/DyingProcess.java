package ai.mobileft.app;

import ai.mobileft.TrainOptions;
import ai.mobileft.TrainingEvent;
import java.io.File;

/** Trains for {@link TrainingSessionTest#processDiesInAStep}: token file, out folder and steps; and dies, in place. */
final class DyingProcess {
  /** The step that is saved by then. */
  static final int SAVED = 6;

  static final int EXIT = 42;

  private DyingProcess() {}

  public static void main(String[] arguments) {
    TrainOptions options = Scratch.options(Integer.parseInt(arguments[2]));
    options.set("save_every", "3");
    SessionListener listener =
        new SessionListener() {
          @Override
          public void onState(SessionState state, String text) {
            if (state == SessionState.FAILED) System.err.println(text);
          }

          @Override
          public void onEvent(TrainingEvent event) {
            if (event.getStep() == SAVED + 2) Runtime.getRuntime().halt(EXIT);
          }
        };
    TrainingSession.begin(
        new TrainerWork(Scratch.BUNDLE, new File(arguments[0]), new File(arguments[1]), options),
        new TrainingPolicy(),
        TrainingSessionTest.GO,
        listener);
  }
}
