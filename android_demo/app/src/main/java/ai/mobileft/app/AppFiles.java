package ai.mobileft.app;

import java.io.File;

/** The paths of the app's files. */
public final class AppFiles {
  private final File folder;
  private final File pushedBundle;

  /**
   * @param folder the app's private folder
   * @param pushedBundle the folder to which `adb push` can copy a bundle, or null
   */
  public AppFiles(File folder, File pushedBundle) {
    this.folder = folder;
    this.pushedBundle = pushedBundle;
  }

  /** The current bundle: the copied one, else the pushed one, or null. */
  public File bundle() {
    if (copiedBundle().exists()) return copiedBundle();
    return pushedBundle != null && new File(pushedBundle, "bundle.json").exists() ? pushedBundle : null;
  }

  File copiedBundle() {
    return new File(folder, "bundle");
  }

  File rows() {
    return new File(folder, "rows.jsonl");
  }

  File run() {
    return new File(folder, "run");
  }

  /** The learner's folder. */
  File learner() {
    return new File(folder, "learner");
  }

  /** What the app shows of the learner. */
  File nights() {
    return new File(folder, "nights.properties");
  }

  File settings() {
    return new File(folder, "settings.properties");
  }
}
