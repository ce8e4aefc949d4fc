package ai.mobileft;

/**
 * A training run. {@link #run} runs all steps, and {@link #step} one step at a time. After the last step, an early end
 * or an error, it can only be closed.
 *
 * <p>An exception that a listener throws ends the training after the current step, with a checkpoint, and reaches the
 * caller. If writing the checkpoint fails, that exception is added as a suppressed one.
 */
public final class Trainer implements AutoCloseable {
  private final Handle handle;

  private Trainer(Handle handle) {
    this.handle = handle;
  }

  /**
   * Opens the bundle. Nothing else happens before the first step.
   *
   * @throws MobileFtException if a file is missing or damaged, or options exclude each other
   */
  public static Trainer open(TrainingFiles files, TrainOptions options) {
    byte[][] utf8 = options.utf8();
    return new Trainer(
        new Handle(
            "Trainer",
            () ->
                Native.openTraining(
                    files.bundle, files.data, files.valid, files.adapter, files.out, files.resume, utf8),
            Native::closeTraining));
  }

  /**
   * Runs all remaining steps and writes the checkpoint.
   *
   * @param listener receives every event in this thread; may be null
   * @throws TrainingStoppedException if training ended early, with a checkpoint
   * @throws MobileFtException if the budget is too small, or a file cannot be read or written
   */
  public void run(TrainingListener listener) {
    handle.run("run", training -> Native.runTraining(training, events(listener)));
  }

  /**
   * Runs one step. The first call also plans the run, and the last call writes a checkpoint. Otherwise, it behaves like
   * {@link #run}. To end early, call {@link #cancel} and then this method once more, which writes the checkpoint.
   *
   * @return whether steps remain
   */
  public boolean step(TrainingListener listener) {
    return handle.call("step", training -> Native.stepTraining(training, events(listener)));
  }

  /**
   * Ends the training after the current step, with a checkpoint. If no step is running, the next {@link #step} writes
   * the checkpoint, if necessary after a first step. This method can be called at any time, from any thread and from a
   * listener. After {@link #close} it does nothing.
   */
  public void cancel() {
    handle.ifOpen(Native::cancelTraining);
  }

  @Override
  public void close() {
    handle.close();
  }

  static Native.BytesListener events(TrainingListener listener) {
    return json -> {
      if (listener != null) listener.onEvent(new TrainingEvent(Utf8.text(json)));
      return true;
    };
  }
}
