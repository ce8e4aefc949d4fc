package ai.mobileft.app;

import ai.mobileft.Dataset;
import ai.mobileft.MobileFtException;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.Reader;

/** The result of importing lines. Valid lines are added, and others are skipped. */
public final class ExampleImport {
  private int added = 0;
  private int leftOut = 0;
  private String firstError = null;

  private ExampleImport() {}

  /**
   * Adds lines to the training data: {@code question<TAB>answer}, or JSON rows for {@link Dataset#addRow}. Ignores
   * blank lines.
   */
  public static ExampleImport read(Reader lines, Dataset dataset) throws IOException {
    ExampleImport result = new ExampleImport();
    BufferedReader reader = new BufferedReader(lines);
    int number = 0;
    for (String line = reader.readLine(); line != null; line = reader.readLine()) {
      ++number;
      if (!line.trim().isEmpty()) result.add(number, line, dataset);
    }
    return result;
  }

  /** The number of added examples. */
  public int getAdded() {
    return added;
  }

  /** The number of skipped lines. */
  public int getLeftOut() {
    return leftOut;
  }

  /** The error of the first skipped line, such as "line 3: the answer is empty", or null. */
  public String getFirstError() {
    return firstError;
  }

  private void add(int number, String line, Dataset dataset) {
    try {
      add(line, dataset);
      ++added;
    } catch (MobileFtException | IllegalArgumentException e) {
      ++leftOut;
      if (firstError == null) firstError = "line " + number + ": " + e.getMessage();
    }
  }

  private static void add(String line, Dataset dataset) {
    if (line.startsWith("{")) {
      dataset.addRow(line);
      return;
    }
    int tab = line.indexOf('\t');
    if (tab < 0) throw new IllegalArgumentException("must have a question, a tab and an answer, or be a JSON row");
    new ExampleForm(line.substring(0, tab), line.substring(tab + 1)).addTo(dataset);
  }
}
