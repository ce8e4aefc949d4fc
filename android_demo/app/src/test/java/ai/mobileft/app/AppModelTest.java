package ai.mobileft.app;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotEquals;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.zip.ZipEntry;
import java.util.zip.ZipInputStream;
import org.junit.After;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.Timeout;

/** The whole app, as its window and its services use it. */
public class AppModelTest {
  private static final long LIMIT = 4_000_000_000L;
  private static final int ENDLESS = 10_000;
  private static final DeviceState NIGHT = TrainingSessionTest.GO;
  private static final DeviceState DAY_ON_BATTERY =
      NIGHT.withCharging(false).withScreenOn(true).withMinuteOfDay(12 * 60);

  @Rule public final Timeout timeout = Timeout.seconds(180);

  private final File folder = Scratch.fresh("app");
  private final File pushed = Scratch.fresh("pushed");
  private AppModel app = process();

  /** The same app in another process; the one before may not have noticed its end. */
  private AppModel process() {
    folder.mkdirs();
    try {
      return new AppModel(new AppFiles(folder, pushed), LIMIT);
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }

  @After
  public void end() {
    app.trainings().interrupt();
    Waiting.until("the end", () -> !app.trainings().isOn() && !app.chat().isOn());
  }

  private static List<BundleCopy.Source> sources(File bundle) {
    List<BundleCopy.Source> sources = new ArrayList<>();
    for (File file : bundle.listFiles()) {
      sources.add(
          new BundleCopy.Source() {
            @Override
            public String getName() {
              return file.getName();
            }

            @Override
            public long getSize() {
              return file.length();
            }

            @Override
            public InputStream open() throws IOException {
              return new FileInputStream(file);
            }
          });
    }
    return sources;
  }

  /** The bundle with another description, which is that of another model for the app. */
  private File described() throws IOException {
    File other = Scratch.fresh("other");
    other.mkdirs();
    for (File file : Scratch.BUNDLE.listFiles()) Files.copy(file.toPath(), new File(other, file.getName()).toPath());
    Files.write(new File(other, "bundle.json").toPath(), new byte[] {'\n'}, StandardOpenOption.APPEND);
    return other;
  }

  private void copyBundle() {
    app.bundle().copy(() -> sources(Scratch.BUNDLE));
    copied();
    assertEquals("", app.board().getMessage());
  }

  private void copied() {
    Waiting.until("the copy", () -> app.bundle().getPercent() < 0);
  }

  private void add(String question, String answer) {
    AtomicInteger added = new AtomicInteger();
    app.examples().add(new ExampleForm(question, answer), added::incrementAndGet);
    Waiting.until("the example", () -> added.get() == 1);
  }

  private void hasExamples() {
    copyBundle();
    add("hello", "hi");
    add("1 + 1", "2");
  }

  private void message(String part) {
    Waiting.until(part + ", but it is " + app.board().getMessage(), () -> app.board().getMessage().contains(part));
  }

  private void set(int steps, int position) {
    app.budget().set(steps, position);
  }

  private void isOver() {
    Waiting.until("the end", () -> !app.trainings().isOn());
  }

  private void stepsTo(long step) {
    Waiting.until("step " + step, () -> app.trainings().getStep() >= step);
  }

  /** As a user goes through it, and then another process. */
  @Test
  public void fromNothingToAnAdapter() throws Exception {
    assertNull(app.bundle().getFolder());
    assertEquals("Not trained yet.", app.trainings().getStatus());
    hasExamples();
    app.examples().read(() -> new ByteArrayInputStream("a\tb\nc\td\nno tab".getBytes(StandardCharsets.UTF_8)));
    message("2 added, 1 skipped: line 3");
    Waiting.until("the count", () -> app.examples().getRows() == 4);

    set(60, 50);
    Waiting.until("the plan", () -> app.budget().getText().contains(" per step, 60 steps in "));
    app.trainings().update(DAY_ON_BATTERY);
    app.trainings().begin();
    assertTrue(app.trainings().isOn());
    isOver();
    assertTrue(app.trainings().getStatus(), app.trainings().getStatus().matches("Done, loss [0-9]+.[0-9]+\\."));
    assertEquals(60, app.trainings().getStep());
    LossChart chart = app.trainings().getChart();
    assertEquals(60, chart.getPoints().size());
    assertTrue(chart.getPoints().get(59).getLoss() < chart.getPoints().get(0).getLoss());
    assertTrue(chart.getLeastMemoryBytes() > 1_000_000);

    app.chat().ask(" hello ");
    assertTrue(app.chat().isOn());
    Waiting.until("the answers", () -> !app.chat().isOn());
    assertEquals("", app.board().getMessage());
    assertFalse(app.chat().getBefore().isEmpty());
    assertNotEquals(app.chat().getBefore(), app.chat().getAfter());

    Map<String, byte[]> zip = exported();
    assertEquals(2, zip.size());
    for (String name : zip.keySet()) {
      byte[] expected = Files.readAllBytes(new File(folder, "run/out/" + name).toPath());
      assertTrue(name, Arrays.equals(expected, zip.get(name)));
    }

    AppModel next = process();
    assertFalse(next.trainings().isInterrupted() || next.trainings().isUnfinished());
    assertEquals("Done.", next.trainings().getStatus());
    assertEquals(60, next.trainings().getChart().getPoints().size());
    assertEquals(60, next.budget().getSteps());
    next.look();
    Waiting.until("the count", () -> next.examples().getRows() == 4);
    next.trainings().goOn(); // there is nothing to do
    Waiting.until("the end", () -> !next.trainings().isOn());
    assertEquals("Done.", next.trainings().getStatus());
  }

  private Map<String, byte[]> exported() throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    app.export(() -> bytes);
    message("exported");
    Map<String, byte[]> files = new HashMap<>();
    try (ZipInputStream zip = new ZipInputStream(new ByteArrayInputStream(bytes.toByteArray()))) {
      for (ZipEntry entry = zip.getNextEntry(); entry != null; entry = zip.getNextEntry()) {
        ByteArrayOutputStream content = new ByteArrayOutputStream();
        for (int b = zip.read(); b >= 0; b = zip.read()) content.write(b);
        files.put(entry.getName(), content.toByteArray());
      }
    }
    return files;
  }

  @Test
  public void needsAModelFirst() {
    app.look();
    app.examples().add(new ExampleForm("hello", "hi"), () -> {});
    message("Choose a model first");
    app.trainings().begin();
    isOver();
    assertEquals("Failed: choose a model first", app.trainings().getStatus());
    app.chat().ask("hello");
    assertFalse(app.chat().isOn());
    app.export(ByteArrayOutputStream::new);
    message("There is no adapter yet");
  }

  @Test
  public void needsExamples() {
    copyBundle();
    app.examples().add(new ExampleForm("hello", " "), () -> {});
    message("the answer is empty");
    app.chat().ask(" ");
    message("The question is empty.");
    app.trainings().begin();
    isOver();
    assertTrue(app.trainings().getStatus(), app.trainings().getStatus().startsWith("Failed: "));
    assertFalse(app.trainings().isUnfinished());
  }

  @Test
  public void pushedBundleServesUntilOneIsCopied() throws Exception {
    pushed.mkdirs();
    assertNull(app.bundle().getFolder());
    BundleCopy.beside(pushed, sources(Scratch.BUNDLE), percent -> {});
    SafeFiles.replace(pushed);
    app.look();
    assertEquals(pushed, app.bundle().getFolder());
    copyBundle();
    assertEquals(new File(folder, "bundle"), app.bundle().getFolder());
  }

  @Test
  public void damagedBundleIsNotUsed() {
    copyBundle();
    List<BundleCopy.Source> sources = sources(Scratch.BUNDLE);
    sources.removeIf(source -> source.getName().equals("program.pte"));
    app.bundle().copy(() -> sources);
    copied();
    message("program.pte");
    assertTrue(new File(app.bundle().getFolder(), "program.pte").exists());
    app.bundle()
        .copy(
            () -> {
              throw new IOException("unplugged");
            });
    copied();
    message("unplugged");
  }

  @Test
  public void modelStaysWhileItTrains() {
    hasExamples();
    app.trainings().begin(); // waits, since nothing is known of the device
    app.bundle().copy(() -> sources(Scratch.BUNDLE));
    copied();
    message("Stop the training");
  }

  /** As by the user. */
  @Test
  public void stopsAndGoesOn() {
    hasExamples();
    set(ENDLESS, 50);
    app.trainings().update(DAY_ON_BATTERY);
    app.trainings().begin();
    stepsTo(5);
    assertTrue(app.trainings().isRunning());
    assertTrue(app.trainings().getStatus(), app.trainings().getStatus().matches("Step .* of 10000, loss .*"));
    app.trainings().stop();
    isOver();
    long step = app.trainings().getStep();
    assertTrue(app.trainings().getStatus().startsWith("Stopped at step " + step + " of 10000"));
    assertTrue(app.trainings().isUnfinished());
    assertFalse(app.trainings().isInterrupted());

    app = process();
    assertEquals(step, app.trainings().getStep());
    assertFalse(app.trainings().isInterrupted());
    app.trainings().update(DAY_ON_BATTERY);
    app.trainings().goOn();
    stepsTo(step + 1);
    assertEquals(1, app.trainings().getChart().getPoints().get(0).getStep() / 1000 + 1); // from the first one on
  }

  /** As by the system: it is to go on as soon as it may. */
  @Test
  public void interruptedTrainingIsWanted() {
    hasExamples();
    set(ENDLESS, 50);
    app.trainings().update(DAY_ON_BATTERY);
    app.trainings().begin();
    stepsTo(2);
    assertFalse(app.trainings().isInterrupted());
    app.trainings().interrupt();
    isOver();
    assertTrue(app.trainings().isInterrupted());
    assertTrue(process().trainings().isInterrupted());
  }

  @Test
  public void stoppedBeforeItBegan() {
    hasExamples();
    app.trainings().update(DAY_ON_BATTERY);
    app.trainings().begin();
    app.trainings().stop();
    isOver();
    assertTrue(app.trainings().isUnfinished());
    assertFalse(app.trainings().isInterrupted());
    assertEquals(0, app.trainings().getStep());
  }

  @Test
  public void waitsForTheDevice() {
    hasExamples();
    app.trainings().begin();
    Waiting.until("waiting", () -> app.trainings().getStatus().contains("battery"));
    assertFalse(app.trainings().isRunning());
    app.trainings().update(DAY_ON_BATTERY);
    isOver();
    assertTrue(app.trainings().getStatus().startsWith("Done"));
  }

  /** What is asked in between, and the examples that are typed meanwhile. */
  @Test
  public void chatsWhileItTrains() {
    hasExamples();
    set(ENDLESS, 50);
    app.trainings().update(DAY_ON_BATTERY);
    app.trainings().begin();
    stepsTo(25); // the adapter is saved once in 20 steps
    app.chat().ask("hello");
    add("2 + 2", "4");
    Waiting.until("the answers", () -> !app.chat().isOn());
    assertEquals("", app.board().getMessage());
    assertFalse(app.chat().getAfter().isEmpty());
    long step = app.trainings().getStep();
    stepsTo(step + 1);
  }

  @Test
  public void chatStopsWhenTold() {
    hasExamples();
    set(2, 50);
    app.trainings().update(DAY_ON_BATTERY);
    app.trainings().begin();
    isOver();
    app.chat().ask("hello");
    Waiting.until("the answers", () -> !app.chat().isOn());
    String whole = app.chat().getBefore();
    assertFalse(app.chat().getAfter().isEmpty());
    app.board()
        .observe(
            () -> {
              if (!app.chat().getBefore().isEmpty()) app.chat().stop();
            });
    app.chat().ask("hello");
    Waiting.until("the end of the chat", () -> !app.chat().isOn());
    String part = app.chat().getBefore();
    assertTrue(part, whole.startsWith(part) && part.length() < whole.length());
    assertEquals("", app.chat().getAfter());
  }

  private void addMany(int from, int to) {
    StringBuilder lines = new StringBuilder();
    for (int i = from; i < to; ++i) lines.append(i + "?\thello\n");
    app.examples().read(() -> new ByteArrayInputStream(lines.toString().getBytes(StandardCharsets.UTF_8)));
    message((to - from) + " added");
  }

  private void night() {
    app.trainings().learnAtNight(); // with nothing new, it is over at once
    isOver();
  }

  @Test
  public void learnsAtNight() {
    copyBundle();
    addMany(0, 60);
    app.trainings().update(DAY_ON_BATTERY);
    app.trainings().learnAtNight();
    assertTrue(app.trainings().isOnAtNight());
    Waiting.until("waiting", () -> app.trainings().getStatus().contains("charger"));
    app.trainings().update(NIGHT.withMinuteOfDay(12 * 60));
    Waiting.until("waiting", () -> app.trainings().getStatus().contains("22:00"));
    app.trainings().interrupt();
    isOver();
    assertEquals("", app.trainings().getNightStatus());
    assertFalse(app.trainings().isInterrupted() || app.trainings().hasAdapter());

    app.trainings().update(NIGHT);
    night();
    String first = app.trainings().getNightStatus();
    assertTrue(first, first.startsWith("Night 1 was adopted: the loss of held-out rows fell by "));
    assertEquals("Not trained yet.", app.trainings().getStatus());
    assertTrue(app.trainings().hasAdapter());

    night(); // there is nothing new
    assertEquals(first, app.trainings().getNightStatus());
    app = process();
    assertEquals(first, app.trainings().getNightStatus());
    app.trainings().update(NIGHT);
    night();
    assertEquals(first, app.trainings().getNightStatus());
    app.chat().ask("0?");
    Waiting.until("the answers", () -> !app.chat().isOn());
    assertEquals("", app.board().getMessage());
    assertFalse(app.chat().getAfter().isEmpty());

    addMany(60, 70);
    night();
    assertTrue(app.trainings().getNightStatus(), app.trainings().getNightStatus().startsWith("Night 2 was "));

    set(3, 50); // a training by hand has the later adapter
    app.trainings().begin();
    assertFalse(app.trainings().isOnAtNight());
    isOver();
    assertEquals(new File(folder, "run/out"), app.trainings().adapter());
  }

  /** The device was taken off its charger, or the system ended the job. */
  @Test
  public void interruptedNightChangesNothing() {
    copyBundle();
    addMany(0, 60);
    app.trainings().update(NIGHT);
    AtomicInteger unplugged = new AtomicInteger();
    app.board()
        .observe(
            () -> {
              boolean steps = app.trainings().getStatus().matches("Learning from new examples, step [1-9][0-9]*.");
              if (steps && unplugged.getAndIncrement() == 0) app.trainings().update(DAY_ON_BATTERY);
            });
    app.trainings().learnAtNight();
    Waiting.until("waiting", () -> app.trainings().getStatus().contains("charger"));
    assertFalse(app.trainings().isRunning());
    assertEquals("", app.trainings().getNightStatus());
    app.chat().ask("0?"); // meanwhile
    Waiting.until("the answers", () -> !app.chat().isOn());
    assertEquals("", app.chat().getAfter());
    app.trainings().update(NIGHT);
    isOver();
    assertTrue(app.trainings().getNightStatus().startsWith("Night 1 was adopted"));
  }

  @Test
  public void anotherModelBeginsNewNights() throws Exception {
    copyBundle();
    addMany(0, 60);
    app.trainings().update(NIGHT);
    night();
    copyBundle(); // the same model again
    assertTrue(app.trainings().hasAdapter());
    app.bundle().copy(() -> sources(described()));
    copied();
    assertEquals("", app.board().getMessage());
    assertEquals("", app.trainings().getNightStatus());
    assertFalse(app.trainings().hasAdapter());
    night();
    assertTrue(app.trainings().getNightStatus().startsWith("Night 1 was "));
  }

  @Test
  public void nightlyIsKept() {
    assertFalse(app.isNightly());
    app.setNightly(true);
    assertTrue(app.isNightly());
    Waiting.until("the file", () -> process().isNightly());
  }

  /** A failed beginning leaves the adapter before it. */
  @Test
  public void failedBeginningLeavesTheAdapter() throws Exception {
    hasExamples();
    set(2, 50);
    app.trainings().update(DAY_ON_BATTERY);
    app.trainings().begin();
    isOver();
    assertTrue(app.trainings().hasAdapter());
    Files.write(new File(folder, "rows.jsonl").toPath(), new byte[0]);
    app.trainings().begin();
    isOver();
    assertEquals("Failed", app.trainings().getStatus().substring(0, 6));
    assertTrue(app.trainings().hasAdapter());
    assertFalse(app.trainings().isUnfinished());
    assertEquals(2, process().budget().getSteps());
  }

  @Test
  public void observersHear() {
    AtomicInteger heard = new AtomicInteger();
    Runnable observer = heard::incrementAndGet;
    app.board().observe(observer);
    app.board().say("hello");
    assertEquals(1, heard.get());
    app.board().forget(observer);
    app.board().say("hi");
    assertEquals(1, heard.get());
    assertEquals("hi", app.board().getMessage());
  }
}
