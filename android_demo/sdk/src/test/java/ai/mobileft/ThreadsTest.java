package ai.mobileft;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotNull;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertSame;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.File;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.BeforeClass;
import org.junit.Test;
import org.junit.function.ThrowingRunnable;

/** One call at a time on each object; and what listeners throw. */
public class ThreadsTest {
  private static File tokens;

  @BeforeClass
  public static void writeTokens() {
    tokens = Scratch.tokens();
  }

  private static Trainer trainer(TrainingFiles files) {
    return Trainer.open(files, Scratch.options(6));
  }

  private static TrainingFiles files() {
    return new TrainingFiles(Scratch.BUNDLE, tokens, Scratch.fresh("out"));
  }

  private static LongBuffer prompt() {
    return ByteBuffer.allocateDirect(8).order(ByteOrder.nativeOrder()).asLongBuffer();
  }

  /** Objects of every class. */
  private static final class Everything implements AutoCloseable {
    final Bundle bundle = Bundle.open(Scratch.BUNDLE);
    final Dataset dataset = Dataset.open(Scratch.BUNDLE, Scratch.fresh("rows.jsonl"));
    final Generator generator = Generator.open(Scratch.BUNDLE, null);
    final Trainer trainer = trainer(files());
    final TrainOptions trainOptions = Scratch.options(1);
    final GenerateOptions answers = Scratch.answers();

    void trainerIsBusy(String running) {
      isBusy(running, "Trainer.run", () -> trainer.run(null));
      isBusy(running, "Trainer.step", () -> trainer.step(null));
      isBusy(running, "Trainer.close", trainer::close);
    }

    void generatorIsBusy(String running) {
      isBusy(running, "Generator.chat", () -> generator.chat(Scratch.QUESTION, answers, null));
      isBusy(running, "Generator.generate", () -> generator.generate(prompt(), answers, token -> true));
      isBusy(running, "Generator.close", generator::close);
    }

    /** Objects on which no call is in progress can be used, and opened and closed. */
    void othersAreNot() {
      assertTrue(bundle.getVocabSize() > 0 && bundle.getMaxSeqLen() > 0);
      assertTrue(bundle.plan(trainOptions).getTotalBytes() > 0);
      assertTrue(bundle.evaluate(null, tokens).getLoss() > 0);
      try (Generator other = Generator.open(Scratch.BUNDLE, null)) {
        assertFalse(other.chat(Scratch.QUESTION, answers, null).isEmpty());
      }
      long rows = dataset.getRows();
      dataset.add(Scratch.TAUGHT);
      assertEquals(rows + 1, dataset.getRows());
      new TrainOptions().set("lr", "1");
      assertEquals("100", new GenerateOptions().get("max_tokens"));
      assertTrue(ProcessMemory.now().getAnon() > 0);
    }

    private static void isBusy(String running, String call, ThrowingRunnable body) {
      assertEquals(
          call + ": busy, because " + running + " is running on the same object",
          assertThrows(BusyException.class, body).getMessage());
    }

    @Override
    public void close() {
      bundle.close();
      dataset.close();
      generator.close();
      trainer.close();
    }
  }

  @Test
  public void aTrainerIsBusyWhileAnotherThreadTrains() throws Exception {
    CountDownLatch inStep = new CountDownLatch(1);
    CountDownLatch goOn = new CountDownLatch(1);
    AtomicReference<Throwable> failure = new AtomicReference<>();
    try (Everything everything = new Everything()) {
      Thread thread =
          new Thread(
              () -> {
                try {
                  everything.trainer.run(
                      event -> {
                        inStep.countDown();
                        await(goOn);
                      });
                } catch (Throwable e) {
                  failure.set(e);
                }
              });
      thread.start();
      await(inStep);
      try {
        everything.trainerIsBusy("Trainer.run");
        everything.othersAreNot();
        everything.trainer.cancel(); // never busy
      } finally {
        goOn.countDown();
        thread.join();
      }
      assertEquals(TrainingStoppedException.class, failure.get().getClass());
      assertEquals(1, everything.dataset.getRows());
    }
  }

  private static void await(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  @Test
  public void anObjectIsBusyForItsListeners() {
    int[] heard = {0};
    try (Everything everything = new Everything()) {
      everything.trainer.step(
          event -> {
            everything.trainerIsBusy("Trainer.step");
            everything.othersAreNot();
            ++heard[0];
          });
      assertEquals(2, heard[0]); // the plan and the step
      everything.generator.chat(
          Scratch.QUESTION,
          Scratch.answers(),
          piece -> {
            everything.generatorIsBusy("Generator.chat");
            ++heard[0];
            return false;
          });
      assertEquals(3, heard[0]);
      everything.generator.generate(
          prompt(),
          Scratch.answers(),
          token -> {
            everything.generatorIsBusy("Generator.generate");
            ++heard[0];
            return false;
          });
      assertEquals(4, heard[0]);
    }
  }

  @Test
  public void cancelBeforeTheFirstStepCounts() {
    try (Trainer trainer = trainer(files())) {
      trainer.cancel();
      assertThrows(TrainingStoppedException.class, () -> trainer.run(null));
    }
  }

  @Test
  public void aDatasetIsForOneThreadAtATime() throws Exception {
    try (Dataset dataset = Dataset.open(Scratch.BUNDLE, Scratch.fresh("rows.jsonl"))) {
      AtomicReference<Throwable> failure = new AtomicReference<>();
      Thread[] threads = new Thread[2];
      for (int i = 0; i < 2; ++i) {
        threads[i] =
            new Thread(
                () -> {
                  try {
                    for (int row = 0; row < 100; ++row) {
                      while (!added(dataset)) Thread.yield();
                    }
                  } catch (Throwable e) {
                    failure.set(e);
                  }
                });
        threads[i].start();
      }
      for (Thread thread : threads) thread.join();
      assertNull(failure.get());
      assertEquals(200, dataset.getRows());
    }
  }

  /** Whether it was this thread's turn. */
  private static boolean added(Dataset dataset) {
    try {
      dataset.addText("hello");
      return true;
    } catch (BusyException e) {
      return false;
    }
  }

  @Test
  public void cancelBetweenStepsSavesWithoutAnother() {
    TrainingFiles files = files();
    List<String> kinds = new ArrayList<>();
    try (Trainer trainer = trainer(files)) {
      assertTrue(trainer.step(null));
      trainer.cancel();
      assertThrows(TrainingStoppedException.class, () -> trainer.step(event -> kinds.add(event.getKind())));
    }
    assertEquals("[saved, stopped]", kinds.toString());
    try (Trainer trainer = trainer(files.resume())) {
      assertTrue(trainer.step(event -> kinds.add(event.getKind() + event.getStep())));
    }
    assertEquals("[saved, stopped, plan-1, step2]", kinds.toString());
  }

  /** {@code cancel} is the one call that may come while another thread closes. */
  @Test
  public void cancelMayRaceWithClose() throws Exception {
    AtomicReference<Trainer> current = new AtomicReference<>(trainer(files()));
    AtomicReference<Throwable> failure = new AtomicReference<>();
    Thread canceller =
        new Thread(
            () -> {
              try {
                for (Trainer trainer = current.get(); trainer != null; trainer = current.get()) trainer.cancel();
              } catch (Throwable e) {
                failure.set(e);
              }
            });
    canceller.start();
    for (int i = 0; i < 200; ++i) {
      Trainer next = trainer(files());
      current.getAndSet(next).close();
    }
    current.getAndSet(null).close();
    canceller.join();
    assertNull(failure.get());
  }

  @Test
  public void trainingGoesOnAfterWhatItsListenerThrew() {
    RuntimeException thrown = new RuntimeException("of the listener");
    List<String> kinds = new ArrayList<>();
    TrainingFiles files = files();
    try (Trainer trainer = trainer(files)) {
      assertSame(
          thrown,
          assertThrows(
              RuntimeException.class,
              () ->
                  trainer.run(
                      event -> {
                        kinds.add(event.getKind());
                        if (event.getStep() == 2) throw thrown;
                      })));
      assertEquals("[plan, step, step]", kinds.toString()); // after that it hears nothing more
      assertEquals(0, thrown.getSuppressed().length);
    }
    List<Long> steps = new ArrayList<>();
    try (Trainer trainer = trainer(files.resume())) {
      trainer.run(
          event -> {
            if (event.getKind().equals("step")) steps.add(event.getStep());
          });
    }
    assertEquals("[3, 4, 5, 6]", steps.toString());
  }

  @Test
  public void failureToSaveIsSuppressedInWhatTheListenerThrew() throws Exception {
    File out = Scratch.fresh("out");
    try (Trainer trainer = trainer(new TrainingFiles(Scratch.BUNDLE, tokens, out))) {
      Error thrown =
          assertThrows(
              Error.class,
              () ->
                  trainer.run(
                      event -> {
                        if (event.getStep() != 2) return;
                        assertTrue(out.renameTo(Scratch.fresh("moved")));
                        try {
                          assertTrue(out.createNewFile()); // a file where the folder was
                        } catch (java.io.IOException e) {
                          throw new AssertionError(e);
                        }
                        throw new Error("of the listener");
                      }));
      assertEquals("of the listener", thrown.getMessage());
      assertEquals(1, thrown.getSuppressed().length);
      assertEquals(MobileFtException.class, thrown.getSuppressed()[0].getClass());
    }
  }

  @Test
  public void generationEndsByWhatItsListenerThrew() {
    RuntimeException thrown = new RuntimeException("of the listener");
    int[] heard = {0};
    try (Generator generator = Generator.open(Scratch.BUNDLE, null)) {
      assertSame(
          thrown,
          assertThrows(
              RuntimeException.class,
              () ->
                  generator.chat(
                      Scratch.QUESTION,
                      Scratch.answers(),
                      piece -> {
                        ++heard[0];
                        throw thrown;
                      })));
      assertSame(
          thrown,
          assertThrows(
              RuntimeException.class,
              () ->
                  generator.generate(
                      prompt(),
                      Scratch.answers(),
                      token -> {
                        ++heard[0];
                        throw thrown;
                      })));
      assertEquals(2, heard[0]);
      String first = generator.chat(Scratch.QUESTION, Scratch.answers(), piece -> false);
      String whole = generator.chat(Scratch.QUESTION, Scratch.answers(), null);
      assertNotNull(first);
      assertTrue(whole.startsWith(first) && whole.length() > first.length());
      generator.cancel(); // of no answer
      assertEquals(whole, generator.chat(Scratch.QUESTION, Scratch.answers(), null));
      String cancelled =
          generator.chat(
              Scratch.QUESTION,
              Scratch.answers(),
              piece -> {
                generator.cancel();
                return true;
              });
      assertEquals(first, cancelled);
      assertFalse(first.isEmpty());
    }
  }
}
