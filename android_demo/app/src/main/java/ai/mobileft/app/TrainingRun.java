package ai.mobileft.app;

import ai.mobileft.Bundle;
import ai.mobileft.Dataset;
import ai.mobileft.TrainOptions;
import java.io.File;
import java.io.IOException;
import java.util.Properties;

/** One training, in a folder: its tokens and options, which never change, and what has become of it so far. */
final class TrainingRun {
  enum Phase {
    /** It goes on by itself as soon as it may, whatever ended the process. */
    WANTED,
    /** It goes on by itself at night. */
    AT_NIGHT,
    /** The user stopped it, or it failed; it goes on when the user says so, or at night. */
    RESTING,
    DONE
  }

  private static final String DESCRIPTION = "run.properties";
  private static final int LONGEST_SEQUENCE = 256;

  private static final String SAVE_EVERY = "20"; // steps that a process which dies loses at most

  private final File folder;
  private final Properties values;
  private volatile Phase phase;

  private TrainingRun(File folder, Properties values) {
    this.folder = folder;
    this.values = values;
    this.phase = Phase.valueOf(values.getProperty("phase"));
  }

  /** Begins anew in a folder; what was there is gone, its adapter too. One of the calls that compute. */
  static TrainingRun prepare(File folder, File bundle, File rows, int steps, long budgetMb) throws IOException {
    Properties values = new Properties();
    values.setProperty("steps", Integer.toString(steps));
    values.setProperty("budget", budgetMb + "MB");
    values.setProperty("seq_len", Long.toString(sequenceLength(bundle)));
    File made = SafeFiles.beside(folder);
    try (Dataset dataset = Dataset.open(bundle, rows)) {
      values.setProperty("rows", Long.toString(dataset.getRows()));
      dataset.writeTokens(options(values), new File(made, "tokens"));
    }
    values.setProperty("phase", Phase.WANTED.name());
    SafeFiles.write(new File(made, DESCRIPTION), values);
    SafeFiles.replace(folder);
    return new TrainingRun(folder, values);
  }

  /** Examples that {@link #prepare} would take. */
  static long count(File bundle, File rows) {
    try (Dataset dataset = Dataset.open(bundle, rows)) {
      return dataset.getRows();
    }
  }

  /** Null where there is none. */
  static TrainingRun open(File folder) throws IOException {
    Properties values = SafeFiles.read(new File(folder, DESCRIPTION));
    return values.isEmpty() ? null : new TrainingRun(folder, values);
  }

  /** Options for a plan of what {@link #prepare} would begin. One of the calls that compute. */
  static TrainOptions options(File bundle, int steps) {
    Properties values = new Properties();
    values.setProperty("steps", Integer.toString(steps));
    values.setProperty("seq_len", Long.toString(sequenceLength(bundle)));
    return options(values);
  }

  TrainOptions options() {
    return options(values);
  }

  int getSteps() {
    return Integer.parseInt(values.getProperty("steps"));
  }

  /** Examples that it learns from. */
  long getRows() {
    return Long.parseLong(values.getProperty("rows"));
  }

  Phase getPhase() {
    return phase;
  }

  /** Writes it down, too. For one thread at a time. */
  void setPhase(Phase next) throws IOException {
    phase = next;
    values.setProperty("phase", next.name());
    SafeFiles.write(new File(folder, DESCRIPTION), values);
  }

  File tokens() {
    return new File(folder, "tokens");
  }

  /** For adapter and checkpoint. */
  File out() {
    return new File(folder, "out");
  }

  StepLog log() {
    return new StepLog(new File(folder, "steps.tsv"));
  }

  /** Whether an adapter has been saved by now. */
  boolean hasAdapter() {
    return new File(out(), AdapterZip.WEIGHTS).exists();
  }

  private static TrainOptions options(Properties values) {
    TrainOptions options = new TrainOptions();
    for (String name : new String[] {"steps", "budget", "seq_len"}) {
      if (values.getProperty(name) != null) options.set(name, values.getProperty(name));
    }
    options.set("save_every", SAVE_EVERY);
    return options;
  }

  private static long sequenceLength(File folder) {
    try (Bundle bundle = Bundle.open(folder)) {
      return Math.min(LONGEST_SEQUENCE, bundle.getMaxSeqLen());
    }
  }
}
