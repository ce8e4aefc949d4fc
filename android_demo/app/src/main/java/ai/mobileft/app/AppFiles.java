package ai.mobileft.app;

import java.io.File;

/** Where the app's files lie. */
public final class AppFiles {
  private final File folder;
  private final File pushedBundle;

  /**
   * @param folder of the app alone, on its own storage
   * @param pushedBundle where `adb push` may put a bundle; null where there is no such place
   */
  public AppFiles(File folder, File pushedBundle) {
    this.folder = folder;
    this.pushedBundle = pushedBundle;
  }

  /** The bundle to use: the one that was copied, else the one that was pushed; null where there is none. */
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

  File settings() {
    return new File(folder, "settings.properties");
  }
}
