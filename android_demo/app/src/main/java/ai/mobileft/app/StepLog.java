package ai.mobileft.app;

import java.io.BufferedReader;
import java.io.File;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/** A file with one line per step of a training, from which another process can restore the chart. */
final class StepLog {
  private final File file;

  StepLog(File file) {
    this.file = file;
  }

  void add(long step, double loss, long memoryBytes) throws IOException {
    try (FileOutputStream out = new FileOutputStream(file, true)) {
      out.write((step + "\t" + loss + "\t" + memoryBytes + "\n").getBytes(StandardCharsets.UTF_8));
    }
  }

  /** Adds all steps to a chart. Ignores an incomplete line, which a dying process may leave. */
  void addTo(LossChart chart) throws IOException {
    if (!file.exists()) return;
    try (BufferedReader lines =
        new BufferedReader(new InputStreamReader(new FileInputStream(file), StandardCharsets.UTF_8))) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        String[] parts = line.split("\t");
        try {
          chart.add(Long.parseLong(parts[0]), Double.parseDouble(parts[1]), Long.parseLong(parts[2]));
        } catch (NumberFormatException | ArrayIndexOutOfBoundsException e) {
          continue;
        }
      }
    }
  }
}
