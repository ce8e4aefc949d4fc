package ai.mobileft.app;

import ai.mobileft.LearnOptions;
import ai.mobileft.LearnerState;
import java.io.File;
import java.io.IOException;
import java.util.Properties;

/** The learner of this app: what it learned at night, and what the app shows of it without opening a model. */
final class Nights {
  private static final String MINUTES = "5"; // the system ends a job after about ten, and a night that ends is lost

  private final AppFiles appFiles;
  private Properties values;

  Nights(AppFiles appFiles) throws IOException {
    this.appFiles = appFiles;
    values = SafeFiles.read(appFiles.nights());
  }

  /** The number of examples that the last night knew. */
  synchronized long getRows() {
    return Long.parseLong(values.getProperty("rows", "0"));
  }

  /** What the last night decided; "" if there was none. */
  synchronized String getStatus() {
    return values.getProperty("status", "");
  }

  /** The folder of the current version's adapter; null for the base model. */
  synchronized File adapter() {
    File folder = new File(appFiles.learner(), values.getProperty("adapter", ""));
    return new File(folder, AdapterZip.WEIGHTS).exists() ? folder : null;
  }

  /** A night on all examples. This is a computing call. */
  Work night(long rows, long budgetMb) {
    File bundle = appFiles.bundle();
    LearnOptions options = new LearnOptions();
    options.set("budget", budgetMb + "MB");
    options.set("seq_len", Long.toString(TrainingRun.sequenceLength(bundle)));
    options.set("minutes", MINUTES);
    return new NightWork(bundle, appFiles.learner(), appFiles.rows(), options, state -> keep(state, rows));
  }

  /** Forgets everything, because another model cannot use it. */
  synchronized void clear() throws IOException {
    SafeFiles.delete(appFiles.nights());
    SafeFiles.delete(appFiles.learner());
    values = new Properties();
  }

  private synchronized void keep(LearnerState state, long rows) {
    Properties next = new Properties();
    String decision = state.isLastNightAdopted() ? " was adopted: " : " was not adopted: ";
    next.setProperty("rows", Long.toString(rows));
    next.setProperty("status", "Night " + state.getNights() + decision + state.getLastNightReason() + ".");
    File adapter = state.getAdapterFolder();
    String folder = adapter == null ? "" : appFiles.learner().toPath().relativize(adapter.toPath()).toString();
    next.setProperty("adapter", folder);
    values = next;
    try {
      SafeFiles.write(appFiles.nights(), next);
    } catch (IOException e) {
      throw new IllegalStateException(Board.line(e), e); // the night is in the learner's folder all the same
    }
  }
}
