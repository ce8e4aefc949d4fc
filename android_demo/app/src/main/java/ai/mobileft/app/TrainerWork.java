package ai.mobileft.app;

import ai.mobileft.TrainOptions;
import ai.mobileft.Trainer;
import ai.mobileft.TrainingFiles;
import ai.mobileft.TrainingListener;
import ai.mobileft.TrainingStoppedException;
import java.io.File;
import java.util.function.BooleanSupplier;

/** A training on a token file. It resumes from the checkpoint in its folder, if there is one. */
final class TrainerWork implements Work {
  private final File bundle;
  private final File tokens;
  private final File out;
  private final TrainOptions options;

  /**
   * @param bundle the folder of the training bundle
   * @param tokens the token file, written with the same options
   * @param out the folder for adapter and checkpoint. An existing checkpoint must have the same bundle, tokens and
   *     options
   * @param options the options, which must not be changed afterwards
   */
  TrainerWork(File bundle, File tokens, File out, TrainOptions options) {
    this.bundle = bundle;
    this.tokens = tokens;
    this.out = out;
    this.options = options;
  }

  @Override
  public boolean run(BooleanSupplier mayGoOn, TrainingListener listener) {
    TrainingFiles files = new TrainingFiles(bundle, tokens, out);
    if (new File(out, "checkpoint.safetensors").exists()) files.resume();
    try (Trainer trainer = Trainer.open(files, options)) {
      boolean stepped = false;
      while (mayGoOn.getAsBoolean()) {
        if (!trainer.step(listener)) return true;
        stepped = true;
      }
      if (stepped) save(trainer, listener);
    }
    return false;
  }

  private static void save(Trainer trainer, TrainingListener listener) {
    trainer.cancel();
    try {
      trainer.step(listener);
    } catch (TrainingStoppedException saved) {
      // as requested
    }
  }
}
