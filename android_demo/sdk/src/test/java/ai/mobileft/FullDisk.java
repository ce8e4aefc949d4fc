package ai.mobileft;

import java.io.File;

/** What {@link MistakesTest#diskFull} runs where files cannot grow: prints "ok" where nothing is lost or crashes. */
public final class FullDisk {
  private FullDisk() {}

  public static void main(String[] arguments) {
    File tokens = new File(arguments[0]);
    new File(System.getProperty("mft.scratch")).mkdirs();
    expectFailure(
        () -> {
          TrainingFiles files = new TrainingFiles(Scratch.BUNDLE, tokens, Scratch.fresh("out"));
          try (Trainer trainer = Trainer.open(files, Scratch.options(2))) {
            trainer.run(null);
          }
        });

    File rows = Scratch.fresh("rows.jsonl");
    int[] added = {0};
    try (Dataset dataset = Dataset.open(Scratch.BUNDLE, rows)) {
      expectFailure(
          () -> {
            for (; added[0] < 10000; ++added[0]) dataset.addText("hello hello hello hello");
          });
      expectFailure(() -> dataset.writeTokens(Scratch.options(1), Scratch.fresh("tokens")));
    }
    try (Dataset dataset = Dataset.open(Scratch.BUNDLE, rows)) {
      check(added[0] > 0 && dataset.getRows() == added[0], added[0] + " rows, then " + dataset.getRows());
    }
    System.out.println("ok");
  }

  private static void expectFailure(Runnable body) {
    try {
      body.run();
    } catch (MobileFtException e) {
      System.out.println(e.getMessage());
      check(e.getMessage().contains("File too large"), e.getMessage());
      return;
    }
    check(false, "it did not fail");
  }

  private static void check(boolean condition, String message) {
    if (!condition) throw new AssertionError(message);
  }
}
