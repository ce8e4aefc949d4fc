package ai.mobileft;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.File;
import java.util.Collections;
import org.junit.Test;

/** Opening and closing leaves nothing behind. */
public class LeakTest {
  private static final int CYCLES = 1000;

  /**
   * Bytes for what Java itself takes meanwhile, less than 1 MB with the flags of test.sh. One object a cycle that is
   * not closed is 20 MB (dataset) to 50 MB (bundle, trainer, generator), and options are 32 MB by their long text.
   */
  private static final long TOLERANCE = 5_000_000;

  private static final String LONG_NUMBER = String.join("", Collections.nCopies(32_000, "0")) + "1e-2";

  private final File tokens = Scratch.tokens();
  private final File rows = Scratch.fresh("rows.jsonl");

  @Test
  public void openAndClose() {
    for (int i = 0; i < CYCLES / 5; ++i) cycle(i); // threads, caches and compiled Java are there from now on
    int files = openFiles();
    long anonymous = anonymousBytes();
    for (int i = 0; i < CYCLES; ++i) cycle(i);
    assertEquals(files, openFiles());
    long grown = anonymousBytes() - anonymous;
    assertTrue(grown + " bytes", grown < TOLERANCE);
  }

  private void cycle(int i) {
    boolean use = i % 20 == 0; // since a step takes its time
    TrainOptions options = Scratch.options(2);
    options.set("lr", LONG_NUMBER);
    GenerateOptions answers = Scratch.answers();
    answers.set("temp", LONG_NUMBER);
    try (Bundle bundle = Bundle.open(Scratch.BUNDLE)) {
      if (use) bundle.plan(options);
    }
    try (Dataset dataset = Dataset.open(Scratch.BUNDLE, rows)) {
      if (use) dataset.add(Scratch.TAUGHT);
    }
    TrainingFiles files = new TrainingFiles(Scratch.BUNDLE, tokens, Scratch.fresh("out"));
    try (Trainer trainer = Trainer.open(files, options)) {
      if (use) trainer.step(event -> {});
    }
    try (Generator generator = Generator.open(Scratch.BUNDLE, null)) {
      if (use) generator.chat(Scratch.QUESTION, answers, piece -> true);
    }
    assertThrows(MobileFtException.class, () -> Bundle.open(Scratch.NOWHERE));
  }

  private static int openFiles() {
    return new File("/proc/self/fd").list().length;
  }

  private static long anonymousBytes() {
    System.gc();
    return ProcessMemory.now().getAnon();
  }
}
