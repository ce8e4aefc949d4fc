package ai.mobileft;

import java.io.File;

/** What a training reads and writes. Nothing may be null. */
public final class TrainingFiles {
  final byte[] bundle;
  final byte[] data;
  final byte[] out;
  byte[] valid;
  byte[] adapter;
  boolean resume;

  /**
   * @param bundleFolder the training bundle
   * @param tokenFile what to learn, of {@link Dataset#writeTokens}
   * @param outFolder for adapter and checkpoint, and best/ for the best adapter by validation loss
   */
  public TrainingFiles(File bundleFolder, File tokenFile, File outFolder) {
    bundle = Utf8.path("bundleFolder", bundleFolder);
    data = Utf8.path("tokenFile", tokenFile);
    out = Utf8.path("outFolder", outFolder);
  }

  /** Validates on this token file, every so many steps as the option "eval_every" says. */
  public TrainingFiles valid(File tokenFile) {
    valid = Utf8.path("tokenFile", tokenFile);
    return this;
  }

  /** Starts from the adapter in this folder, in place of the bundle's own. */
  public TrainingFiles adapter(File folder) {
    adapter = Utf8.path("folder", folder);
    return this;
  }

  /** Goes on from the checkpoint in the out folder. */
  public TrainingFiles resume() {
    resume = true;
    return this;
  }
}
