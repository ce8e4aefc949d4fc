package ai.mobileft;

import java.io.File;
import java.util.List;

/**
 * An adapter that learns from new rows night after night, in a folder of its own. A night adopts its result only if
 * rows that it never saw became likelier than chance explains, and general text did not suffer.
 *
 * <p>Each call leaves the folder as it was or as it is to be, whenever the process ends. An exception that a listener
 * throws cancels the night after the current step, and reaches the caller.
 */
public final class Learner implements AutoCloseable {
  private final Handle handle;

  private Learner(Handle handle) {
    this.handle = handle;
  }

  /**
   * Opens a bundle for a learner's folder, which the first night creates if it is empty or missing.
   *
   * @throws MobileFtException if the bundle is missing or damaged
   */
  public static Learner open(File bundleFolder, File folder) {
    byte[] bundle = Utf8.path("bundleFolder", bundleFolder);
    byte[] state = Utf8.path("folder", folder);
    return new Learner(new Handle("Learner", () -> Native.openLearner(bundle, state), Native::closeLearner));
  }

  /**
   * A night: trains on the rows that are new since the last one, and on older ones. A row is known again by its "id",
   * or else by its text, so that the same file can grow and be given every night.
   *
   * @param rowsFile a .jsonl file, such as that of a {@link Dataset}
   * @param listener receives every event in this thread; may be null
   * @return the state after the night
   * @throws TrainingStoppedException if the night was cancelled; the folder is as it was
   * @throws MobileFtException if a row or an option cannot be used, or the budget is too small
   */
  public LearnerState learn(File rowsFile, LearnOptions options, TrainingListener listener) {
    byte[] rows = Utf8.path("rowsFile", rowsFile);
    byte[][] utf8 = options.utf8();
    return handle.call(
        "learn",
        learner -> {
          Native.learn(learner, rows, utf8, Trainer.events(listener));
          return state(learner);
        });
  }

  /**
   * Forgets rows by their ids: removes them, and repeats the nights since the last version that was not trained on
   * them.
   *
   * @throws MobileFtException if an id is not known
   */
  public LearnerState forget(List<String> ids, TrainingListener listener) {
    byte[][] utf8 = new byte[ids.size()][];
    for (int i = 0; i < utf8.length; ++i) utf8[i] = Utf8.bytes("id", ids.get(i));
    return handle.call(
        "forget",
        learner -> {
          Native.forget(learner, utf8, Trainer.events(listener));
          return state(learner);
        });
  }

  /**
   * Makes an earlier version the current one.
   *
   * @param version 0 is the base model
   * @throws MobileFtException if the version is not kept
   */
  public LearnerState rollBack(long version) {
    return handle.call(
        "rollBack",
        learner -> {
          Native.rollBack(learner, version);
          return state(learner);
        });
  }

  /**
   * The versions and nights so far.
   *
   * @throws MobileFtException if there was no night yet
   */
  public LearnerState getState() {
    return handle.call("getState", Learner::state);
  }

  /** Ends the night in progress after its current step. Can be called from any thread. */
  public void cancel() {
    handle.ifOpen(Native::cancelLearner);
  }

  @Override
  public void close() {
    handle.close();
  }

  private static LearnerState state(long learner) {
    return new LearnerState(Utf8.text(Native.learnerState(learner)));
  }
}
