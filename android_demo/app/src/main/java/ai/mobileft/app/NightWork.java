package ai.mobileft.app;

import ai.mobileft.LearnOptions;
import ai.mobileft.Learner;
import ai.mobileft.LearnerState;
import ai.mobileft.TrainingListener;
import ai.mobileft.TrainingStoppedException;
import java.io.File;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;

/** A night of a learner. One that may not go on changes nothing, and begins again later. */
final class NightWork implements Work {
  private final File bundle;
  private final File folder;
  private final File rows;
  private final LearnOptions options;
  private final Consumer<LearnerState> done;

  /**
   * @param folder the learner's
   * @param rows all examples so far; the learner knows those that it has seen
   * @param done receives the state after the night
   */
  NightWork(File bundle, File folder, File rows, LearnOptions options, Consumer<LearnerState> done) {
    this.bundle = bundle;
    this.folder = folder;
    this.rows = rows;
    this.options = options;
    this.done = done;
  }

  @Override
  public boolean run(BooleanSupplier mayGoOn, TrainingListener listener) {
    try (Learner learner = Learner.open(bundle, folder)) {
      LearnerState state =
          learner.learn(
              rows,
              options,
              event -> {
                if (!mayGoOn.getAsBoolean()) learner.cancel();
                listener.onEvent(event);
              });
      done.accept(state);
      return true;
    } catch (TrainingStoppedException asRequested) {
      return false;
    }
  }
}
