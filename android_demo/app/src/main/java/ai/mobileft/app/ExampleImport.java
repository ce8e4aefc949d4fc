package ai.mobileft.app;

import ai.mobileft.Dataset;
import ai.mobileft.MobileFtException;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.Reader;

/** What became of lines that were imported: what could be added was, and the others were left out. */
public final class ExampleImport {
  private int added = 0;
  private int leftOut = 0;
  private String firstError = null;

  private ExampleImport() {}

  /**
   * Adds lines to the training data: {@code question<TAB>answer}, or rows of JSON as {@link Dataset#addRow} takes them.
   * Blank lines count for nothing.
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

  /** Examples that were added. */
  public int getAdded() {
    return added;
  }

  /** Lines that were not. */
  public int getLeftOut() {
    return leftOut;
  }

  /** Such as "line 3: the answer is blank", of the first line that was left out; null where none was. */
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
    if (tab < 0) throw new IllegalArgumentException("needs a question, a tab and an answer, or a row of JSON");
    new ExampleForm(line.substring(0, tab), line.substring(tab + 1)).addTo(dataset);
  }
}
