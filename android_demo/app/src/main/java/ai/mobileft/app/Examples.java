package ai.mobileft.app;

import ai.mobileft.Dataset;
import ai.mobileft.MobileFtException;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.Executor;

/** The examples to learn. They can be added while a training runs. */
public final class Examples {
  private final AppFiles appFiles;
  private final Executor files;
  private final Board board;
  private volatile long rows = 0;

  Examples(AppFiles appFiles, Executor files, Board board) {
    this.appFiles = appFiles;
    this.files = files;
    this.board = board;
  }

  /** The number of examples. */
  public long getRows() {
    return rows;
  }

  /** Adds a typed example. {@code added} runs in another thread when it is on disk. Mistakes are shown on the board. */
  public void add(ExampleForm form, Runnable added) {
    if (form.mistake() != null) {
      board.say(form.mistake());
      return;
    }
    change(
        dataset -> {
          form.addTo(dataset);
          added.run();
          return "";
        });
  }

  /** Adds the lines of a UTF-8 file. */
  public void read(Opening<InputStream> file) {
    change(
        dataset -> {
          try (Reader lines = new InputStreamReader(file.open(), StandardCharsets.UTF_8)) {
            ExampleImport result = ExampleImport.read(lines, dataset);
            String text = result.getAdded() + " added";
            if (result.getLeftOut() == 0) return text;
            return text + ", " + result.getLeftOut() + " skipped: " + result.getFirstError();
          }
        });
  }

  /** Counts the examples again. */
  void count() {
    if (appFiles.bundle() != null) change(dataset -> board.getMessage());
  }

  private interface Change {
    /** Returns the message for the user. */
    String of(Dataset dataset) throws IOException;
  }

  private void change(Change change) {
    files.execute(
        () -> {
          File bundle = appFiles.bundle();
          if (bundle == null) {
            board.say("Choose a model first.");
            return;
          }
          try (Dataset dataset = Dataset.open(bundle, appFiles.rows())) {
            try {
              board.say(change.of(dataset));
            } finally {
              rows = dataset.getRows(); // also after an incomplete import
            }
          } catch (IOException | MobileFtException | IllegalArgumentException e) {
            board.say(e);
          }
        });
  }
}
