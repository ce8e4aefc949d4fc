package ai.mobileft.app;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.util.List;

/** Copies a bundle, file by file, to the app's storage. */
public final class BundleCopy {
  /** A file of the folder that the user chose. */
  public interface Source {
    String getName();

    /** The size in bytes, or 0 if it is unknown. */
    long getSize();

    InputStream open() throws IOException;
  }

  /** Receives the progress of a copy, in the copying thread. */
  public interface Progress {
    void onPercent(int percent);
  }

  /** The file that a bundle must have. Opening the bundle checks the rest. */
  private static final String DESCRIPTION = "bundle.json";

  private BundleCopy() {}

  /** Copies to a folder beside the target and returns it. {@link SafeFiles#replace} then replaces the target. */
  static File beside(File target, List<Source> files, Progress progress) throws IOException {
    if (files.stream().noneMatch(file -> file.getName().equals(DESCRIPTION))) {
      throw new IOException("This folder is not a bundle: it has no " + DESCRIPTION + ".");
    }
    File made = SafeFiles.beside(target);
    long total = files.stream().mapToLong(Source::getSize).sum();
    long[] bytes = {0};
    int[] told = {-1};
    Runnable step =
        () -> {
          int percent = (int) Math.min(100, total == 0 ? 100 : bytes[0] * 100 / total);
          if (percent > told[0]) progress.onPercent(told[0] = percent);
        };
    for (Source file : files) {
      String name = file.getName();
      if (name.contains("/") || name.equals("..") || name.equals(".")) {
        throw new IOException("\"" + name + "\" is not a valid file name");
      }
      try (InputStream in = file.open()) {
        SafeFiles.copy(in, new File(made, name), bytes, step);
      }
    }
    return made;
  }
}
