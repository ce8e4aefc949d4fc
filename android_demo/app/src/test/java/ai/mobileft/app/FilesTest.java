package ai.mobileft.app;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.junit.Test;

/** Files that outlive the process: whole, or not there. */
public class FilesTest {
  private final File folder = Scratch.fresh("folder");

  private static final class Part implements BundleCopy.Source {
    private final String name;
    private final byte[] bytes;
    private final int readable;

    /** Reading fails behind so many bytes. */
    Part(String name, int size, int readable) {
      this.name = name;
      this.bytes = new byte[size];
      Arrays.fill(bytes, (byte) size);
      this.readable = readable;
    }

    Part(String name, int size) {
      this(name, size, size);
    }

    @Override
    public String getName() {
      return name;
    }

    @Override
    public long getSize() {
      return bytes.length;
    }

    @Override
    public InputStream open() {
      return new ByteArrayInputStream(bytes) {
        @Override
        public synchronized int read(byte[] buffer, int offset, int length) {
          if (pos >= readable && readable < bytes.length) throw new IllegalStateException("unplugged");
          return super.read(buffer, offset, Math.min(length, Math.max(1, readable - pos)));
        }
      };
    }
  }

  private static final Part DESCRIPTION = new Part("bundle.json", 10);

  private List<Integer> copy(BundleCopy.Source... files) throws IOException {
    List<Integer> percents = new ArrayList<>();
    BundleCopy.beside(folder, Arrays.asList(files), percents::add);
    SafeFiles.replace(folder);
    return percents;
  }

  private List<String> names() {
    String[] names = folder.list();
    Arrays.sort(names);
    return Arrays.asList(names);
  }

  /** Nothing lies around: neither what was made, nor what was replaced. */
  private void isAlone() {
    for (File file : folder.getParentFile().listFiles()) {
      assertFalse(file.getName(), file.getName().startsWith(folder.getName() + "."));
    }
  }

  @Test
  public void copiesAllFiles() throws Exception {
    List<Integer> percents = copy(DESCRIPTION, new Part("weights", 3_000_000), new Part("empty", 0));
    assertEquals(Arrays.asList("bundle.json", "empty", "weights"), names());
    byte[] expected = new byte[3_000_000];
    Arrays.fill(expected, (byte) 3_000_000);
    assertArrayEquals(expected, Files.readAllBytes(new File(folder, "weights").toPath()));
    List<Integer> sorted = new ArrayList<>(percents);
    Collections.sort(sorted);
    assertEquals(sorted, percents);
    assertTrue(percents.toString(), percents.size() >= 3 && percents.get(0) < 50);
    assertEquals(100, (int) percents.get(percents.size() - 1));

    copy(DESCRIPTION, new Part("other", 5));
    assertEquals(Arrays.asList("bundle.json", "other"), names());
    isAlone();
  }

  @Test
  public void brokenCopyIsNotUsed() throws Exception {
    copy(DESCRIPTION);
    BundleCopy.Source broken = new Part("weights", 100, 50);
    assertThrows(IllegalStateException.class, () -> copy(DESCRIPTION, broken));
    assertEquals(Arrays.asList("bundle.json"), names());
    SafeFiles.recover(folder); // the next process
    assertEquals(Arrays.asList("bundle.json"), names());
    isAlone();
    copy(DESCRIPTION, new Part("weights", 100));
    isAlone();
  }

  @Test
  public void refusesWhatIsNoBundle() throws Exception {
    assertThrows(IOException.class, () -> copy(new Part("holiday.jpg", 3)));
    for (String name : new String[] {"../bundle.json", "a/b", "..", "."}) {
      assertThrows(IOException.class, () -> copy(DESCRIPTION, new Part(name, 3)));
    }
    assertFalse(folder.exists());
  }

  /** The process died between the two renames. */
  @Test
  public void recoversTheOldFolder() throws Exception {
    copy(DESCRIPTION, new Part("old", 1));
    SafeFiles.beside(folder);
    assertTrue(folder.renameTo(new File(folder.getPath() + ".old")));
    SafeFiles.recover(folder);
    assertEquals(Arrays.asList("bundle.json", "old"), names());
    isAlone();
  }

  /** The process died behind them. */
  @Test
  public void recoversTheNewFolder() throws Exception {
    copy(DESCRIPTION, new Part("new", 1));
    assertTrue(new File(folder.getPath() + ".old").mkdir());
    SafeFiles.recover(folder);
    assertEquals(Arrays.asList("bundle.json", "new"), names());
    isAlone();
  }

  @Test
  public void settingsAreKept() throws Exception {
    File file = new File(SafeFiles.beside(folder), "settings");
    Settings settings = Settings.open(file);
    assertEquals(60, settings.getSteps());
    assertEquals(50, settings.getPosition());
    assertFalse(settings.isNightly());
    settings.setSteps(7);
    settings.setPosition(100);
    settings.setNightly(true);
    settings.save(Runnable::run, new Board());
    settings = Settings.open(file);
    assertEquals(7, settings.getSteps());
    assertEquals(100, settings.getPosition());
    assertTrue(settings.isNightly());
  }

  @Test
  public void settingsHaveLimits() throws Exception {
    File file = new File(SafeFiles.beside(folder), "settings");
    Files.write(file.toPath(), "steps=0\nposition=101\nnightly=perhaps".getBytes(StandardCharsets.UTF_8));
    Settings settings = Settings.open(file);
    assertEquals(1, settings.getSteps());
    assertEquals(100, settings.getPosition());
    assertFalse(settings.isNightly());
    Files.write(file.toPath(), "steps=1000000\nposition=-1".getBytes(StandardCharsets.UTF_8));
    settings = Settings.open(file);
    assertEquals(10_000, settings.getSteps());
    assertEquals(0, settings.getPosition());
    Files.write(file.toPath(), "steps=many".getBytes(StandardCharsets.UTF_8));
    assertEquals(60, Settings.open(file).getSteps());
    Files.write(file.toPath(), "steps=\\u12".getBytes(StandardCharsets.UTF_8));
    assertThrows(IOException.class, () -> Settings.open(file));
  }

  @Test
  public void stepsAreKept() throws Exception {
    File file = new File(SafeFiles.beside(folder), "steps");
    LossChart empty = new LossChart(10);
    new StepLog(file).addTo(empty);
    assertTrue(empty.getPoints().isEmpty());
    for (int step = 1; step <= 3; ++step) new StepLog(file).add(step, 1.0 / 3 * step, 100 + step);
    new StepLog(file).add(3, 1, 103); // as where a training went on from a checkpoint before it
    Files.write(file.toPath(), "4\t1".getBytes(StandardCharsets.UTF_8), java.nio.file.StandardOpenOption.APPEND);
    LossChart chart = new LossChart(10);
    new StepLog(file).addTo(chart);
    assertEquals(3, chart.getPoints().size());
    assertEquals(1.0 / 3 * 2, chart.getPoints().get(1).getLoss(), 0);
    assertEquals(102, chart.getPoints().get(1).getMemoryBytes());
  }
}
