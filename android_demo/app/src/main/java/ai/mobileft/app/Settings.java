package ai.mobileft.app;

import java.io.File;
import java.io.IOException;
import java.util.Properties;
import java.util.concurrent.Executor;

/** The user's settings. */
final class Settings {
  private static final int STEPS = 60;
  private static final int MOST_STEPS = 10_000;
  private static final int POSITION = 50;

  private final File file;
  private final Properties values;

  private Settings(File file, Properties values) {
    this.file = file;
    this.values = values;
  }

  static Settings open(File file) throws IOException {
    return new Settings(file, SafeFiles.read(file));
  }

  /** Writes the settings in the file thread. */
  void save(Executor files, Board board) {
    files.execute(
        () -> {
          try {
            SafeFiles.write(file, values);
          } catch (IOException e) {
            board.say(e);
          }
        });
  }

  /** Always within 1 to {@link #MOST_STEPS}. */
  int getSteps() {
    return integer("steps", STEPS, 1, MOST_STEPS);
  }

  void setSteps(int steps) {
    values.setProperty("steps", Integer.toString(steps));
  }

  /** Position of the {@link BudgetSlider}, 0 to 100. */
  int getPosition() {
    return integer("position", POSITION, 0, 100);
  }

  void setPosition(int position) {
    values.setProperty("position", Integer.toString(position));
  }

  /** Whether to train at night. */
  boolean isNightly() {
    return Boolean.parseBoolean(values.getProperty("nightly"));
  }

  void setNightly(boolean nightly) {
    values.setProperty("nightly", Boolean.toString(nightly));
  }

  private int integer(String name, int standard, int least, int most) {
    try {
      return Math.max(least, Math.min(most, Integer.parseInt(values.getProperty(name))));
    } catch (NumberFormatException e) { // also for null
      return standard;
    }
  }
}
