package ai.mobileft.app;

import ai.mobileft.Bundle;
import ai.mobileft.Dataset;
import ai.mobileft.TrainOptions;
import java.io.File;
import java.io.IOException;
import java.util.Properties;

/** A training in a folder: its tokens and options, which never change, and its progress. */
final class TrainingRun {
  enum Phase {
    /** It resumes automatically as soon as possible after the process ended. */
    WANTED,
    /** The user stopped it, or it failed. It resumes when the user requests it. */
    RESTING,
    DONE
  }

  private static final String DESCRIPTION = "run.properties";
  private static final int LONGEST_SEQUENCE = 256;

  private static final String SAVE_EVERY = "20"; // maximum number of steps lost if the process dies

  private final File folder;
  private final Properties values;
  private volatile Phase phase;

  private TrainingRun(File folder, Properties values) {
    this.folder = folder;
    this.values = values;
    this.phase = Phase.valueOf(values.getProperty("phase"));
  }

  /** Starts a new run in a folder, and deletes the old one with its adapter. This is a computing call. */
  static TrainingRun prepare(File folder, File bundle, File rows, int steps, long budgetMb) throws IOException {
    Properties values = new Properties();
    values.setProperty("steps", Integer.toString(steps));
    values.setProperty("budget", budgetMb + "MB");
    values.setProperty("seq_len", Long.toString(sequenceLength(bundle)));
    File made = SafeFiles.beside(folder);
    try (Dataset dataset = Dataset.open(bundle, rows)) {
      dataset.writeTokens(options(values), new File(made, "tokens"));
    }
    values.setProperty("phase", Phase.WANTED.name());
    SafeFiles.write(new File(made, DESCRIPTION), values);
    SafeFiles.replace(folder);
    return new TrainingRun(folder, values);
  }

  /** The number of examples that {@link #prepare} would use. */
  static long count(File bundle, File rows) {
    try (Dataset dataset = Dataset.open(bundle, rows)) {
      return dataset.getRows();
    }
  }

  /** Returns null if there is none. */
  static TrainingRun open(File folder) throws IOException {
    Properties values = SafeFiles.read(new File(folder, DESCRIPTION));
    return values.isEmpty() ? null : new TrainingRun(folder, values);
  }

  /** Returns the options for planning the run that {@link #prepare} would start. This is a computing call. */
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

  Phase getPhase() {
    return phase;
  }

  /** Also saves it. Only one thread may call it at a time. */
  void setPhase(Phase next) throws IOException {
    phase = next;
    values.setProperty("phase", next.name());
    SafeFiles.write(new File(folder, DESCRIPTION), values);
  }

  File tokens() {
    return new File(folder, "tokens");
  }

  /** The folder for adapter and checkpoint. */
  File out() {
    return new File(folder, "out");
  }

  StepLog log() {
    return new StepLog(new File(folder, "steps.tsv"));
  }

  /** Whether an adapter has been saved. */
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

  /** The longest sequence to train on. This is a computing call. */
  static long sequenceLength(File folder) {
    try (Bundle bundle = Bundle.open(folder)) {
      return Math.min(LONGEST_SEQUENCE, bundle.getMaxSeqLen());
    }
  }
}
