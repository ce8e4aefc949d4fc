package ai.mobileft.app;

import ai.mobileft.Dataset;
import ai.mobileft.TrainOptions;
import java.io.File;

/** The small bundle, and files to write. */
final class Scratch {
  static final File BUNDLE = new File(System.getProperty("mft.bundle"));

  private static final File FOLDER = new File(System.getProperty("mft.scratch"));
  private static int names = 0;

  private Scratch() {}

  /** What does not exist yet. */
  static synchronized File fresh(String name) {
    return new File(FOLDER, name + ++names);
  }

  static TrainOptions options(int steps) {
    TrainOptions options = new TrainOptions();
    options.set("steps", Integer.toString(steps));
    options.set("seq_len", "64");
    options.set("lr", "1e-2");
    return options;
  }

  /** Tokens of a few rows. */
  static File tokens() {
    File tokens = fresh("tokens");
    try (Dataset dataset = Dataset.open(BUNDLE, fresh("rows.jsonl"))) {
      new ExampleForm("hello", "hi").addTo(dataset);
      new ExampleForm("1 + 1", "2").addTo(dataset);
      new ExampleForm("hello hello", "this is a longer answer").addTo(dataset);
      dataset.writeTokens(options(1), tokens);
    }
    return tokens;
  }
}
