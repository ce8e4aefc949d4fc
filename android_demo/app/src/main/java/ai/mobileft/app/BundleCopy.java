package ai.mobileft.app;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.util.List;

/** Copies a bundle, file by file, into the app's storage. */
public final class BundleCopy {
  /** A file of the folder that the user chose. */
  public interface Source {
    String getName();

    /** In bytes; what is not known counts as 0. */
    long getSize();

    InputStream open() throws IOException;
  }

  /** Hears of a copy in progress, in its thread. */
  public interface Progress {
    void onPercent(int percent);
  }

  /** What a folder must hold to be a bundle at all; opening it tells the rest. */
  private static final String DESCRIPTION = "bundle.json";

  private BundleCopy() {}

  /** Copies beside the target; {@link SafeFiles#replace} puts it in its place. Returns where it is. */
  static File beside(File target, List<Source> files, Progress progress) throws IOException {
    if (files.stream().noneMatch(file -> file.getName().equals(DESCRIPTION))) {
      throw new IOException("no bundle: there is no " + DESCRIPTION + " in this folder");
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
        throw new IOException("\"" + name + "\" is no file's name");
      }
      try (InputStream in = file.open()) {
        SafeFiles.copy(in, new File(made, name), bytes, step);
      }
    }
    return made;
  }
}
