package ai.mobileft.app;

import ai.mobileft.Bundle;
import ai.mobileft.MobileFtException;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.FutureTask;

/** The bundle that the app uses. */
public final class BundleChoice {
  private final AppFiles appFiles;
  private final Executor files;
  private final Computing computing;
  private final Trainings trainings;
  private final Board board;
  private final Runnable replaced;
  private volatile File folder; // updated by each check
  private volatile int percent = -1;

  /** {@code replaced} runs in the file thread when the bundle has changed. */
  BundleChoice(
      AppFiles appFiles, Executor files, Computing computing, Trainings trainings, Board board, Runnable replaced) {
    this.appFiles = appFiles;
    this.files = files;
    this.computing = computing;
    this.trainings = trainings;
    this.board = board;
    this.replaced = replaced;
    look();
  }

  /** The bundle's folder, or null. */
  public File getFolder() {
    return folder;
  }

  /** Checks for another bundle, which may have been pushed. */
  void look() {
    folder = appFiles.bundle();
  }

  /** The progress of the current copy, or -1 if there is none. */
  public int getPercent() {
    return percent;
  }

  /** Copies a folder to the app's storage. If it is a bundle, it becomes the current one. */
  public void copy(Opening<List<BundleCopy.Source>> folder) {
    setPercent(0);
    files.execute(
        () -> {
          try {
            refuseWhileTraining();
            File made = BundleCopy.beside(appFiles.copiedBundle(), folder.open(), this::setPercent);
            use(made);
            look();
            replaced.run();
            board.say("");
          } catch (IOException | MobileFtException e) {
            board.say(e);
          } finally {
            setPercent(-1);
          }
        });
  }

  /** Runs while nothing computes, because opening a bundle computes, and the replaced bundle must not be in use. */
  private void use(File made) throws IOException {
    FutureTask<Void> task =
        new FutureTask<>(
            () -> {
              refuseWhileTraining();
              Bundle.open(made).close();
              boolean same = isSame(made);
              SafeFiles.replace(appFiles.copiedBundle());
              if (!same) trainings.forgetNights();
              return null;
            });
    computing.run(task);
    try {
      task.get();
    } catch (ExecutionException e) {
      throw new IOException(Board.line(e.getCause()), e);
    } catch (InterruptedException e) {
      throw new AssertionError(e); // this thread is never interrupted
    }
  }

  /** Whether this is the current model again: its description has the checksums of its files. */
  private boolean isSame(File made) throws IOException {
    File current = appFiles.bundle();
    if (current == null) return false;
    byte[][] both = new byte[2][];
    for (int i = 0; i < 2; ++i) {
      both[i] = Files.readAllBytes(new File(i == 0 ? made : current, "bundle.json").toPath());
    }
    return Arrays.equals(both[0], both[1]);
  }

  private void refuseWhileTraining() throws IOException {
    if (trainings.isOn()) throw new IOException("Stop the training before you choose another model.");
  }

  private void setPercent(int percent) {
    this.percent = percent;
    board.changed();
  }
}
