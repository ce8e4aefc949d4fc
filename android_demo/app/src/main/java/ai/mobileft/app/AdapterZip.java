package ai.mobileft.app;

import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.util.zip.ZipEntry;
import java.util.zip.ZipOutputStream;

/** Writes an adapter as a zip file of its PEFT folder. */
final class AdapterZip {
  static final String CONFIG = "adapter_config.json";
  static final String WEIGHTS = "adapter_model.safetensors";

  private AdapterZip() {}

  /** Writes the adapter in a folder to a stream, and closes the stream. */
  static void write(File adapter, OutputStream to) throws IOException {
    try (ZipOutputStream zip = new ZipOutputStream(to)) {
      for (String name : new String[] {CONFIG, WEIGHTS}) {
        zip.putNextEntry(new ZipEntry(name));
        SafeFiles.send(new File(adapter, name), zip);
        zip.closeEntry();
      }
    }
  }
}
