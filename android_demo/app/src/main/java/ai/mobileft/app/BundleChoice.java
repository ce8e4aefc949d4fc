package ai.mobileft.app;

import ai.mobileft.Bundle;
import ai.mobileft.MobileFtException;
import java.io.File;
import java.io.IOException;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.FutureTask;

/** Which bundle the app uses. */
public final class BundleChoice {
  private final AppFiles appFiles;
  private final Executor files;
  private final Computing computing;
  private final Trainings trainings;
  private final Board board;
  private final Runnable replaced;
  private volatile File folder; // as of the last look
  private volatile int percent = -1;

  /** {@code replaced} runs when there is another bundle, in the thread of files. */
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

  /** Its folder; null where there is none. */
  public File getFolder() {
    return folder;
  }

  /** Another one may have been pushed. */
  void look() {
    folder = appFiles.bundle();
  }

  /** How much of a copy is done; -1: none is in progress. */
  public int getPercent() {
    return percent;
  }

  /** Copies a folder into the app's storage, and uses it from then on, if it is a bundle. */
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

  /** Where nothing computes, since opening a bundle does, and nothing may use the one that goes. */
  private void use(File made) throws IOException {
    FutureTask<Void> task =
        new FutureTask<>(
            () -> {
              refuseWhileTraining();
              Bundle.open(made).close();
              SafeFiles.replace(appFiles.copiedBundle());
              return null;
            });
    computing.run(task);
    try {
      task.get();
    } catch (ExecutionException e) {
      throw new IOException(Board.line(e.getCause()), e);
    } catch (InterruptedException e) {
      throw new AssertionError(e); // nobody else has this thread
    }
  }

  private void refuseWhileTraining() throws IOException {
    if (trainings.isOn()) throw new IOException("stop the training before you choose another model");
  }

  private void setPercent(int percent) {
    this.percent = percent;
    board.changed();
  }
}
