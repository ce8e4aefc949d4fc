package ai.mobileft.app;

import ai.mobileft.TrainingListener;
import java.util.function.BooleanSupplier;

/** What a {@link TrainingSession} computes. */
interface Work {
  /**
   * Computes until it is done, or until {@code mayGoOn}, which is asked after each step, says no. Called again, it goes
   * on with what it saved, if it saves anything.
   *
   * @return whether it is done
   */
  boolean run(BooleanSupplier mayGoOn, TrainingListener listener);
}
