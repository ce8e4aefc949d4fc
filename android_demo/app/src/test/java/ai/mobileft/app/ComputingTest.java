package ai.mobileft.app;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import ai.mobileft.Bundle;
import ai.mobileft.TrainOptions;
import ai.mobileft.Trainer;
import ai.mobileft.TrainingFiles;
import java.io.File;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.BeforeClass;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.Timeout;

/** Whatever is asked in between: one thing at a time computes, and the training's losses are the same, bit by bit. */
public class ComputingTest {
  private static final int STEPS = 40;
  private static final int ENDLESS = 50_000;

  private static File tokens;
  private static List<Double> losses; // of an uninterrupted training

  @Rule public final Timeout timeout = Timeout.seconds(120);

  private final Computing computing = new Computing();
  private final Recorder recorder = new Recorder();
  private final File out = Scratch.fresh("out");
  private final AtomicInteger sessions = new AtomicInteger(); // that were begun
  private final List<String> failures = Collections.synchronizedList(new ArrayList<>());

  @BeforeClass
  public static void trainAlone() {
    tokens = Scratch.tokens();
    losses = new ArrayList<>();
    TrainingFiles files = new TrainingFiles(Scratch.BUNDLE, tokens, Scratch.fresh("out"));
    try (Trainer trainer = Trainer.open(files, Scratch.options(STEPS))) {
      trainer.run(
          event -> {
            if (event.getKind().equals("step")) losses.add(event.getLoss());
          });
    }
  }

  private void train(int steps) {
    TrainOptions options = Scratch.options(steps);
    computing.train(
        (device, listener) -> {
          sessions.incrementAndGet();
          return TrainingSession.begin(new TrainerWork(Scratch.BUNDLE, tokens, out, options), Trainings.NOW, device, listener);
        },
        recorder);
  }

  /** A task that computes. */
  private void plan() {
    try (Bundle bundle = Bundle.open(Scratch.BUNDLE)) {
      bundle.plan(Scratch.options(1));
    } catch (RuntimeException e) { // such as that something else computes
      failures.add(e.toString());
    }
  }

  private void runAndWait(Runnable task) {
    CountDownLatch done = new CountDownLatch(1);
    computing.run(
        () -> {
          task.run();
          done.countDown();
        });
    await(done);
  }

  @Test
  public void tasksComeInBetween() {
    computing.update(TrainingSessionTest.GO);
    train(STEPS);
    recorder.next(SessionState.RUNNING);
    for (int i = 0; i < 4; ++i) runAndWait(this::plan);
    recorder.await(SessionState.DONE);
    assertEquals(Collections.emptyList(), failures);
    assertEquals(losses, recorder.losses());
    recorder.hearsNothing();
    runAndWait(this::plan);
    assertEquals(Collections.emptyList(), failures);
  }

  /** In each step one, and of several that wait the training goes on behind the last one only. */
  @Test
  public void manyTasksAtOnce() {
    AtomicInteger done = new AtomicInteger();
    computing.update(TrainingSessionTest.GO);
    recorder.atStep(
        step -> {
          for (int i = 0; i < 3; ++i) {
            computing.run(
                () -> {
                  plan();
                  done.incrementAndGet();
                });
          }
        });
    train(STEPS);
    recorder.await(SessionState.DONE);
    Waiting.until("the last tasks", () -> done.get() == 3 * recorder.losses().size());
    assertEquals(Collections.emptyList(), failures);
    assertEquals(losses, recorder.losses());
  }

  @Test
  public void goesOnBehindTheLastTaskOnly() {
    train(1);
    recorder.next(SessionState.WAITING);
    CountDownLatch go = new CountDownLatch(1);
    computing.run(() -> await(go));
    computing.run(this::plan);
    computing.run(this::plan);
    go.countDown();
    recorder.next(SessionState.WAITING);
    assertEquals(2, sessions.get());
    assertEquals(Collections.emptyList(), failures);
  }

  private static void await(CountDownLatch latch) {
    try {
      latch.await();
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  @Test
  public void tasksRunInTheirOrder() {
    List<Integer> order = Collections.synchronizedList(new ArrayList<>());
    for (int i = 0; i < 5; ++i) {
      int number = i;
      computing.run(() -> order.add(number));
    }
    runAndWait(() -> order.add(5));
    assertEquals(Arrays.asList(0, 1, 2, 3, 4, 5), order);
  }

  @Test
  public void trainingWaitsForTheTask() {
    CountDownLatch go = new CountDownLatch(1);
    computing.update(TrainingSessionTest.GO);
    computing.run(
        () -> {
          await(go);
          plan();
        });
    train(STEPS);
    recorder.hearsNothing();
    go.countDown();
    recorder.await(SessionState.DONE);
    assertEquals(Collections.emptyList(), failures);
  }

  @Test
  public void stopsOnceAndSaved() {
    computing.update(TrainingSessionTest.GO);
    train(ENDLESS);
    recorder.next(SessionState.RUNNING);
    Waiting.until("a step", () -> !recorder.losses().isEmpty());
    computing.stop();
    computing.stop();
    recorder.next(SessionState.STOPPED);
    recorder.hearsNothing();
    assertTrue(new File(out, "checkpoint.safetensors").exists());
    computing.stop(); // nothing is on
    recorder.hearsNothing();
  }

  /** Stopped while it is put aside: it does not come back. */
  @Test
  public void stopsDuringATask() {
    computing.update(TrainingSessionTest.GO);
    train(ENDLESS);
    recorder.next(SessionState.RUNNING);
    runAndWait(computing::stop);
    recorder.next(SessionState.STOPPED);
    recorder.hearsNothing();
    runAndWait(this::plan);
    assertEquals(Collections.emptyList(), failures);
    assertEquals(1, sessions.get());
  }

  /** The next one begins only when the one before is closed. */
  @Test
  public void anotherOneRightAfterTheStop() {
    computing.update(TrainingSessionTest.GO);
    for (int i = 0; i < 5; ++i) {
      train(ENDLESS);
      assertThrows(IllegalStateException.class, () -> train(ENDLESS));
      recorder.next(SessionState.RUNNING);
      int seen = recorder.losses().size();
      Waiting.until("a step", () -> recorder.losses().size() > seen);
      recorder.forget();
      computing.run(this::plan); // its end, too, may begin what is wanted by then
      computing.stop();
      assertThrows(IllegalStateException.class, () -> train(ENDLESS));
      recorder.await(SessionState.STOPPED);
    }
    runAndWait(this::plan);
    assertEquals(Collections.emptyList(), failures);
    List<Long> steps = recorder.steps();
    for (int i = 0; i < steps.size(); ++i) assertEquals(i + 1, (long) steps.get(i)); // each went on from the last
  }

  @Test
  public void hearsHowTheDeviceIs() {
    train(STEPS);
    recorder.next(SessionState.WAITING);
    runAndWait(this::plan); // what was told before counts for the session after it
    recorder.next(SessionState.WAITING);
    computing.update(TrainingSessionTest.GO);
    recorder.next(SessionState.RUNNING);
    recorder.next(SessionState.DONE);
    assertEquals(losses, recorder.losses());
  }

  @Test
  public void toldDuringATask() {
    train(STEPS);
    recorder.next(SessionState.WAITING);
    runAndWait(() -> computing.update(TrainingSessionTest.GO));
    recorder.next(SessionState.RUNNING);
    recorder.next(SessionState.DONE);
  }

  @Test
  public void failureIsTheEnd() {
    computing.update(TrainingSessionTest.GO);
    File noTokens = Scratch.fresh("missing");
    computing.train(
        (device, listener) ->
            TrainingSession.begin(
                new TrainerWork(Scratch.BUNDLE, noTokens, out, Scratch.options(1)), Trainings.NOW, device, listener),
        recorder);
    recorder.next(SessionState.RUNNING);
    String text = recorder.next(SessionState.FAILED);
    assertTrue(text, text.contains(noTokens.getName()));
    runAndWait(this::plan);
    recorder.hearsNothing();
    train(STEPS);
    recorder.await(SessionState.DONE);
    assertFalse(recorder.losses().isEmpty());
  }
}
