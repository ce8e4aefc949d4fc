package ai.mobileft;

import java.io.File;

/** The files that a training reads and writes. No argument may be null. */
public final class TrainingFiles {
  final byte[] bundle;
  final byte[] data;
  final byte[] out;
  byte[] valid;
  byte[] adapter;
  boolean resume;

  /**
   * @param bundleFolder the training bundle
   * @param tokenFile the training data, from {@link Dataset#writeTokens}
   * @param outFolder the folder for adapter and checkpoint, and best/ with the best adapter by validation loss
   */
  public TrainingFiles(File bundleFolder, File tokenFile, File outFolder) {
    bundle = Utf8.path("bundleFolder", bundleFolder);
    data = Utf8.path("tokenFile", tokenFile);
    out = Utf8.path("outFolder", outFolder);
  }

  /** Validates on this token file, every "eval_every" steps. */
  public TrainingFiles valid(File tokenFile) {
    valid = Utf8.path("tokenFile", tokenFile);
    return this;
  }

  /** Starts from the adapter in this folder instead of the bundle's own. */
  public TrainingFiles adapter(File folder) {
    adapter = Utf8.path("folder", folder);
    return this;
  }

  /** Resumes from the checkpoint in the output folder, with its options where none are set. */
  public TrainingFiles resume() {
    resume = true;
    return this;
  }
}
