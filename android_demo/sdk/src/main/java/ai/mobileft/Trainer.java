package ai.mobileft;

/**
 * One training. Makes all steps in {@link #run}, or one at a time in {@link #step}; after the last one, an early end or
 * an error it can only be closed.
 *
 * <p>An exception that a listener throws ends the training after the step in progress, saved, and goes on to the
 * caller; where saving failed, that is suppressed in it.
 */
public final class Trainer implements AutoCloseable {
  private final Handle handle;

  private Trainer(Handle handle) {
    this.handle = handle;
  }

  /**
   * Opens the bundle; nothing else happens before the first step.
   *
   * @throws MobileFtException where a file is missing or damaged, or options exclude each other
   */
  public static Trainer open(TrainingFiles files, TrainOptions options) {
    byte[][] utf8 = options.utf8();
    return new Trainer(
        new Handle(
            "Trainer",
            Turn.COMPUTING,
            () ->
                Native.openTraining(
                    files.bundle, files.data, files.valid, files.adapter, files.out, files.resume, utf8),
            Native::closeTraining));
  }

  /**
   * Makes all steps that are left, and saves.
   *
   * @param listener hears of every event in this thread; may be null
   * @throws TrainingStoppedException where training ended early, saved
   * @throws MobileFtException where the budget is too small, or a file cannot be read or written
   */
  public void run(TrainingListener listener) {
    handle.run("run", training -> Native.runTraining(training, events(listener)));
  }

  /**
   * Makes one step with what is due around it: the plan before the first, a save after the last. Otherwise as {@link
   * #run}. Who wants no more steps calls {@link #cancel} and this once more, which saves.
   *
   * @return whether another step is left
   */
  public boolean step(TrainingListener listener) {
    return handle.call("step", training -> Native.stepTraining(training, events(listener)));
  }

  /**
   * Ends the training after the step in progress, saved; between steps, or before the first, the next {@link #step}
   * saves what there is, if need be after a first step. Unlike all else this may be called at any time: from any thread,
   * from within a listener, and after {@link #close}, where it does nothing.
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
