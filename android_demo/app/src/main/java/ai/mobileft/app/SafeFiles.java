package ai.mobileft.app;

import java.io.File;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.Properties;

/** Replaces files and folders atomically: they are written beside their target, synced, and renamed. */
final class SafeFiles {
  private SafeFiles() {}

  /** Creates an empty folder to be filled for {@link #replace}. */
  static File beside(File target) throws IOException {
    File made = new File(target.getPath() + ".new");
    delete(made);
    if (!made.mkdirs()) throw new IOException(made + ": cannot create this folder");
    return made;
  }

  /** Replaces the target by the finished folder beside it. */
  static void replace(File target) throws IOException {
    File old = new File(target.getPath() + ".old");
    delete(old);
    if (target.exists()) rename(target, old);
    rename(new File(target.getPath() + ".new"), target);
    delete(old);
  }

  /** Call it before anything else, because the process may have died in {@link #replace}, or before it. */
  static void recover(File target) throws IOException {
    File old = new File(target.getPath() + ".old");
    if (!target.exists() && old.exists()) rename(old, target);
    delete(old);
    delete(new File(target.getPath() + ".new"));
  }

  static void copy(InputStream from, File to, long[] bytes, Runnable progress) throws IOException {
    try (FileOutputStream out = new FileOutputStream(to)) {
      byte[] buffer = new byte[1 << 20];
      for (int count = from.read(buffer); count >= 0; count = from.read(buffer)) {
        out.write(buffer, 0, count);
        bytes[0] += count;
        progress.run();
      }
      out.getFD().sync();
    }
  }

  static void write(File file, Properties properties) throws IOException {
    File made = new File(file.getPath() + ".new");
    try (FileOutputStream out = new FileOutputStream(made)) {
      properties.store(out, null);
      out.getFD().sync();
    }
    rename(made, file);
  }

  /** Returns empty content if there is no such file. */
  static Properties read(File file) throws IOException {
    Properties properties = new Properties();
    if (!file.exists()) return properties;
    try (InputStream in = new FileInputStream(file)) {
      properties.load(in);
    } catch (IllegalArgumentException e) {
      throw new IOException(file + ": " + e.getMessage());
    }
    return properties;
  }

  static void send(File file, OutputStream to) throws IOException {
    try (InputStream in = new FileInputStream(file)) {
      byte[] buffer = new byte[1 << 16];
      for (int count = in.read(buffer); count >= 0; count = in.read(buffer)) to.write(buffer, 0, count);
    }
  }

  private static void rename(File from, File to) throws IOException {
    if (!from.renameTo(to)) throw new IOException(from + ": cannot rename it to " + to.getName());
  }

  /** Deletes a file or a folder with its content. It need not exist. */
  static void delete(File file) throws IOException {
    File[] inside = file.listFiles();
    if (inside != null) for (File each : inside) delete(each);
    if (!file.delete() && file.exists()) throw new IOException(file + ": cannot delete it");
  }
}
