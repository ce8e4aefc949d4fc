package ai.mobileft.app;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertTrue;

import ai.mobileft.GenerateOptions;
import ai.mobileft.Generator;
import ai.mobileft.Message;
import ai.mobileft.TrainOptions;
import ai.mobileft.Trainer;
import ai.mobileft.TrainingFiles;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.junit.BeforeClass;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.Timeout;

/** Whatever happens to a session: its losses are those of a training that nothing happened to, bit by bit. */
public class TrainingSessionTest {
  private static final int STEPS = 20;

  private static final TrainingPolicy POLICY = new TrainingPolicy().withWindow(new DailyWindow(22 * 60, 6 * 60));
  static final DeviceState GO =
      DeviceState.UNKNOWN.withCharging(true).withBatteryPercent(80).withScreenOn(false).withMinuteOfDay(0);
  private static final DeviceState UNPLUGGED = GO.withCharging(false);
  private static final DeviceState SCREEN_ON = GO.withScreenOn(true);
  private static final String WAITS_FOR_CHARGER = "Waiting for a charger.";

  private static File tokens;
  private static List<Double> losses; // of an uninterrupted training

  /** Of each test, where a wake-up was lost, say. */
  @Rule public final Timeout timeout = Timeout.seconds(120);

  private final File out = Scratch.fresh("out");
  private final Recorder recorder = new Recorder();

  @BeforeClass
  public static void trainWithoutSession() {
    tokens = Scratch.tokens();
    losses = new ArrayList<>();
    TrainingFiles files = new TrainingFiles(Scratch.BUNDLE, tokens, Scratch.fresh("out"));
    try (Trainer trainer = Trainer.open(files, Scratch.options(STEPS))) {
      trainer.run(
          event -> {
            if (event.getKind().equals("step")) losses.add(event.getLoss());
          });
    }
    assertEquals(STEPS, losses.size());
  }

  private TrainingSession begin(DeviceState device) {
    return begin(device, Scratch.options(STEPS));
  }

  private TrainingSession begin(DeviceState device, TrainOptions options) {
    return TrainingSession.begin(new TrainerWork(Scratch.BUNDLE, tokens, out, options), POLICY, device, recorder);
  }

  /** Waits for the charger, for tests that act in the listener from the first moment on. */
  private TrainingSession beginUnplugged() {
    TrainingSession session = begin(UNPLUGGED);
    assertEquals(WAITS_FOR_CHARGER, recorder.next(SessionState.WAITING));
    return session;
  }

  private void isWhole() {
    assertEquals(losses, recorder.losses());
  }

  /** From here on nothing happens any more, and the training is done. */
  private void goesOnToTheEnd(TrainingSession session) {
    session.update(GO);
    recorder.next(SessionState.RUNNING);
    recorder.next(SessionState.DONE);
    isWhole();
  }

  private void anotherSessionIsDone() {
    TrainingSession session = begin(GO);
    recorder.next(SessionState.RUNNING);
    recorder.next(SessionState.DONE);
    session.close();
  }

  private static void inAnotherThread(Runnable body) {
    Thread thread = new Thread(body);
    thread.start();
    try {
      thread.join();
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  @Test
  public void trainsWithoutAnyPause() {
    try (TrainingSession session = begin(GO)) {
      recorder.next(SessionState.RUNNING);
      assertEquals("", recorder.next(SessionState.DONE));
      session.update(UNPLUGGED); // do nothing any more
      session.stop();
    }
    recorder.hearsNothing();
    isWhole();
    anotherSessionIsDone();
    isWhole(); // there was nothing left to do
  }

  private static final Object[][] SIGNALS = {
    {UNPLUGGED, WAITS_FOR_CHARGER},
    {GO.withBatteryPercent(19), "Waiting for the battery to reach 25 percent."},
    {GO.withThermalStatus(2), "Waiting for the device to cool down."},
    {GO.withTrimMemoryLevel(10), "Waiting for memory, because other apps need it."},
    {SCREEN_ON, "Waiting for the screen to turn off."},
    {GO.withMinuteOfDay(6 * 60), "Waiting until 22:00."},
  };

  @Test
  public void everySignalPausesAtTheEndOfTheStep() {
    for (Object[] signal : SIGNALS) new TrainingSessionTest().pausesAtTheEndOfTheStep(signal);
  }

  private void pausesAtTheEndOfTheStep(Object[] signal) {
    try (TrainingSession session = beginUnplugged()) {
      recorder.atStep(
          step -> {
            if (step == 5) inAnotherThread(() -> session.update((DeviceState) signal[0]));
          });
      session.update(GO);
      recorder.next(SessionState.RUNNING);
      assertEquals(signal[1], recorder.next(SessionState.PAUSED));
      assertEquals(losses.subList(0, 5), recorder.losses());
      goesOnToTheEnd(session);
    }
  }

  /** The worker is wherever it is. */
  @Test
  public void everySignalPausesWithinAStep() {
    for (Object[] signal : SIGNALS) new TrainingSessionTest().pausesWithinAStep(signal);
  }

  private void pausesWithinAStep(Object[] signal) {
    TrainOptions endless = Scratch.options(1_000_000);
    try (TrainingSession session = begin(GO, endless)) {
      recorder.next(SessionState.RUNNING);
      for (int pause = 0; pause < 3; ++pause) {
        int before = recorder.steps().size();
        while (recorder.steps().size() < before + 3) Thread.yield();
        session.update((DeviceState) signal[0]);
        int told = recorder.steps().size();
        assertEquals(signal[1], recorder.next(SessionState.PAUSED));
        int paused = recorder.steps().size();
        assertTrue(told + " steps, then " + paused, paused <= told + 1);
        session.update(GO);
        recorder.next(SessionState.RUNNING);
      }
    }
    recorder.next(SessionState.STOPPED);
    List<Long> steps = recorder.steps();
    for (int i = 0; i < steps.size(); ++i) assertEquals(i + 1, (long) steps.get(i));
  }

  @Test
  public void memoryIsFreeWhilePaused() throws Exception {
    try (TrainingSession session = beginUnplugged()) {
      boolean[] mapped = {false};
      recorder.atStep(
          step -> {
            if (step != 5) return;
            mapped[0] = mapsBundle();
            session.update(UNPLUGGED);
          });
      assertFalse(mapsBundle());
      session.update(GO);
      recorder.next(SessionState.RUNNING);
      recorder.next(SessionState.PAUSED);
      assertTrue(mapped[0]);
      assertFalse(mapsBundle());
      goesOnToTheEnd(session);
    }
  }

  private static boolean mapsBundle() {
    try {
      for (String line : Files.readAllLines(new File("/proc/self/maps").toPath())) {
        if (line.contains(Scratch.BUNDLE.getPath())) return true;
      }
      return false;
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }

  @Test
  public void tellsOtherReasonsOnce() {
    try (TrainingSession session = beginUnplugged()) {
      session.update(UNPLUGGED.withMinuteOfDay(1));
      recorder.hearsNothing();
      session.update(SCREEN_ON);
      assertEquals("Waiting for the screen to turn off.", recorder.next(SessionState.WAITING));
      recorder.atStep(step -> session.update(step == 5 ? UNPLUGGED : GO));
      session.update(GO);
      recorder.next(SessionState.RUNNING);
      assertEquals(WAITS_FOR_CHARGER, recorder.next(SessionState.PAUSED));
      session.update(UNPLUGGED.withMinuteOfDay(1));
      recorder.hearsNothing();
      session.update(SCREEN_ON);
      assertEquals("Waiting for the screen to turn off.", recorder.next(SessionState.PAUSED));
      goesOnToTheEnd(session);
    }
  }

  @Test
  public void pausesLastUntilTheBatteryHasSomeMore() {
    try (TrainingSession session = begin(GO.withBatteryPercent(19))) {
      recorder.next(SessionState.WAITING);
      recorder.atStep(
          step -> {
            if (step == 5) session.update(GO.withBatteryPercent(19));
          });
      session.update(GO.withBatteryPercent(20)); // enough to begin
      recorder.next(SessionState.RUNNING);
      recorder.next(SessionState.PAUSED);
      session.update(GO.withBatteryPercent(24));
      recorder.hearsNothing();
      session.update(GO.withBatteryPercent(25));
      recorder.next(SessionState.RUNNING);
      recorder.next(SessionState.DONE);
    }
    isWhole();
  }

  @Test
  public void pausedBeforeTheFirstStep() {
    try (TrainingSession session = beginUnplugged()) {
      int[] times = {0};
      recorder.atState(
          state -> {
            if (state == SessionState.RUNNING && ++times[0] <= 3) session.update(UNPLUGGED);
          });
      for (int i = 0; i < 3; ++i) {
        session.update(GO);
        recorder.next(SessionState.RUNNING);
        recorder.next(SessionState.PAUSED);
      }
      assertEquals(Collections.emptyList(), recorder.losses());
      assertFalse(new File(out, "checkpoint.safetensors").exists());
      goesOnToTheEnd(session);
    }
  }

  /** As above, but after a pause. */
  @Test
  public void pausedBeforeTheNextStep() {
    try (TrainingSession session = beginUnplugged()) {
      recorder.atState(
          state -> {
            if (state == SessionState.RUNNING && recorder.steps().size() == 5) {
              recorder.atState(other -> {});
              session.update(UNPLUGGED);
            }
          });
      recorder.atStep(
          step -> {
            if (step == 5) session.update(UNPLUGGED);
          });
      for (int i = 0; i < 2; ++i) {
        session.update(GO);
        recorder.next(SessionState.RUNNING);
        recorder.next(SessionState.PAUSED);
        assertEquals(5, recorder.steps().size());
      }
      goesOnToTheEnd(session);
    }
  }

  @Test
  public void stoppedBeforeTheFirstStep() {
    try (TrainingSession session = beginUnplugged()) {
      recorder.atState(
          state -> {
            if (state == SessionState.RUNNING) session.stop();
          });
      session.update(GO);
      recorder.next(SessionState.RUNNING);
      recorder.next(SessionState.STOPPED);
    }
    assertEquals(Collections.emptyList(), recorder.losses());
    recorder.atState(state -> {});
    anotherSessionIsDone();
    isWhole();
  }

  @Test
  public void stoppedWhileItTrains() {
    try (TrainingSession session = beginUnplugged()) {
      recorder.atStep(
          step -> {
            if (step == 5) session.stop();
          });
      session.update(GO);
      recorder.next(SessionState.RUNNING);
      recorder.next(SessionState.STOPPED);
      session.update(GO);
      recorder.hearsNothing();
    }
    assertEquals(losses.subList(0, 5), recorder.losses());
    anotherSessionIsDone();
    isWhole();
  }

  @Test
  public void stoppedWhileItWaits() {
    TrainingSession session = beginUnplugged();
    session.close();
    recorder.next(SessionState.STOPPED);
    session.close();
    recorder.hearsNothing();
  }

  @Test
  public void stoppedWhilePaused() {
    try (TrainingSession session = beginUnplugged()) {
      recorder.atStep(
          step -> {
            if (step == 5) session.update(UNPLUGGED);
          });
      session.update(GO);
      recorder.next(SessionState.RUNNING);
      recorder.next(SessionState.PAUSED);
      session.stop();
      recorder.next(SessionState.STOPPED);
    }
    anotherSessionIsDone();
    isWhole();
  }

  /** After the last step it is done, whatever came meanwhile. */
  @Test
  public void stoppedAtTheLastStep() {
    try (TrainingSession session = beginUnplugged()) {
      recorder.atStep(
          step -> {
            if (step < STEPS) return;
            session.update(UNPLUGGED);
            session.stop();
          });
      goesOnToTheEnd(session);
    }
  }

  @Test
  public void closeWaitsForTheEnd() {
    TrainingSession session = begin(GO, Scratch.options(1_000_000));
    recorder.next(SessionState.RUNNING);
    while (recorder.steps().isEmpty()) Thread.yield();
    Thread.currentThread().interrupt(); // which waits until it is closed
    session.close();
    assertTrue(Thread.interrupted());
    int steps = recorder.steps().size();
    recorder.next(SessionState.STOPPED);
    assertFalse(mapsBundle());
    assertEquals(steps, recorder.steps().size());
  }

  @Test
  public void processDiesInAPause() {
    try (TrainingSession dead = beginUnplugged()) { // which does nothing more than it would if it were dead
      recorder.atStep(
          step -> {
            if (step == 5) dead.update(UNPLUGGED);
          });
      dead.update(GO);
      recorder.next(SessionState.RUNNING);
      recorder.next(SessionState.PAUSED);
      anotherSessionIsDone();
      isWhole();
    }
  }

  /** What was made since the latest save is made again, and comes out the same. */
  @Test
  public void processDiesInAStep() throws Exception {
    Process process =
        new ProcessBuilder(
                System.getProperty("java.home") + "/bin/java",
                "-XX:+UseSerialGC",
                "-Djava.library.path=" + System.getProperty("java.library.path"),
                "-Dmft.bundle=" + Scratch.BUNDLE,
                "-Dmft.scratch=" + Scratch.fresh("child"),
                "-cp",
                System.getProperty("java.class.path"),
                "ai.mobileft.app.DyingProcess",
                tokens.getPath(),
                out.getPath(),
                Integer.toString(STEPS))
            .inheritIO()
            .start();
    assertEquals(DyingProcess.EXIT, process.waitFor());
    anotherSessionIsDone();
    assertEquals(losses.subList(DyingProcess.SAVED, STEPS), recorder.losses());
  }

  @Test
  public void budgetTooSmall() {
    TrainOptions options = Scratch.options(STEPS);
    options.set("budget", "1MB");
    try (TrainingSession session = begin(GO, options)) {
      recorder.next(SessionState.RUNNING);
      String message = recorder.next(SessionState.FAILED);
      assertTrue(message, message.startsWith("budget 1MB is too small; this run needs "));
      session.update(UNPLUGGED);
    }
    recorder.hearsNothing();
    assertFalse(mapsBundle());
    assertEquals(Collections.emptyList(), recorder.losses());
  }

  @Test
  public void tokensVanishInAPause() throws Exception {
    File copy = Scratch.fresh("tokens");
    Files.copy(tokens.toPath(), copy.toPath());
    try (TrainingSession session =
        TrainingSession.begin(new TrainerWork(Scratch.BUNDLE, copy, out, Scratch.options(STEPS)), POLICY, UNPLUGGED, recorder)) {
      recorder.next(SessionState.WAITING);
      recorder.atStep(step -> session.update(UNPLUGGED));
      session.update(GO);
      recorder.next(SessionState.RUNNING);
      recorder.next(SessionState.PAUSED);
      assertTrue(copy.delete());
      session.update(GO);
      recorder.next(SessionState.RUNNING);
      String message = recorder.next(SessionState.FAILED);
      assertTrue(message, message.contains(copy.getPath()));
    }
  }

  /** A training and an answer of another object may run at the same time. */
  @Test
  public void trainsWhileTheModelAnswers() {
    try (Generator generator = Generator.open(Scratch.BUNDLE, null)) {
      generator.chat(
          Arrays.asList(Message.user("hello")),
          new GenerateOptions(),
          piece -> {
            begin(GO);
            recorder.next(SessionState.RUNNING);
            recorder.next(SessionState.DONE);
            return false;
          });
    }
    isWhole();
  }

  @Test
  public void listenerThrows() {
    TrainingSession closed = beginUnplugged();
    recorder.atStep(
        step -> {
          if (step == 5) closed.close();
        });
    closed.update(GO);
    recorder.next(SessionState.RUNNING);
    assertEquals(
        "java.lang.IllegalStateException: close: the listener would wait for itself",
        recorder.next(SessionState.FAILED));
    closed.close();
    anotherSessionIsDone();
    isWhole();
  }

  /** From two threads, one of which is the session's own, and over several sessions. */
  @Test
  public void randomSignals() {
    int pauses = 0;
    for (int seed = 0; seed < 50; ++seed) pauses += new TrainingSessionTest().randomSignals(seed);
    assertTrue(pauses + " pauses", pauses > 20);
  }

  private int randomSignals(int seed) {
    Random random = new Random(seed);
    Random randomOfWorker = new Random(~seed);
    TrainingSession session = beginUnplugged();
    for (int i = 0; i < 20; ++i) {
      TrainingSession current = session;
      recorder.atStep(
          step -> {
            if (randomOfWorker.nextInt(3) == 0) current.update(signal(randomOfWorker));
          });
      current.update(random.nextBoolean() ? GO : signal(random));
      if (random.nextBoolean()) recorder.hearsSomethingNew(50); // else the next comes before this one has any effect
      if (random.nextInt(6) == 0) {
        current.close();
        session = begin(random.nextBoolean() ? GO : signal(random));
      }
    }
    recorder.atStep(step -> {});
    session.close();
    recorder.forget();
    try (TrainingSession last = begin(UNPLUGGED)) {
      for (int i = 0; i < 20; ++i) last.update(signal(random));
      last.update(GO);
      recorder.await(SessionState.DONE);
    }
    assertEquals("seed " + seed, losses, recorder.losses());
    return recorder.pauses();
  }

  private static DeviceState signal(Random random) {
    return (DeviceState) SIGNALS[random.nextInt(SIGNALS.length)][0];
  }
}
