package ai.mobileft;

/**
 * One training. {@link #run} makes all steps, {@link #step} one at a time. After the last step, an early end or an
 * error it can only be closed.
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
   * Makes all steps that are left, and writes the checkpoint.
   *
   * @param listener receives every event in this thread; may be null
   * @throws TrainingStoppedException if training ended early, with a checkpoint
   * @throws MobileFtException if the budget is too small, or a file cannot be read or written
   */
  public void run(TrainingListener listener) {
    handle.run("run", training -> Native.runTraining(training, events(listener)));
  }

  /**
   * Makes one step, and what is due around it: the plan before the first step, a checkpoint after the last one.
   * Otherwise as {@link #run}. To end early, call {@link #cancel} and then this method once more, which writes the
   * checkpoint.
   *
   * @return whether another step is left
   */
  public boolean step(TrainingListener listener) {
    return handle.call("step", training -> Native.stepTraining(training, events(listener)));
  }

  /**
   * Ends the training after the current step, with a checkpoint. Between steps, or before the first one, the next
   * {@link #step} writes the checkpoint, if necessary after a first step. This method may be called at any time: from
   * any thread, from a listener, and after {@link #close}, when it does nothing.
   */
  public void cancel() {
    handle.ifOpen(Native::cancelTraining);
  }

  @Override
  public void close() {
    handle.close();
  }

  private static Native.BytesListener events(TrainingListener listener) {
    return json -> {
      if (listener != null) listener.onEvent(new TrainingEvent(Utf8.text(json)));
      return true;
    };
  }
}
