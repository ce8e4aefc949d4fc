package ai.mobileft.app;

import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;

/**
 * The state of the app without its user interface; there is one per process. State that must survive the process is in
 * files. No method waits for the disk or the runtime, except the constructor.
 */
public final class AppModel {
  private final Executor files = Executors.newSingleThreadExecutor(task -> new Thread(task, "files"));
  private final Board board = new Board();
  private final Settings settings;
  private final Examples examples;
  private final Budget budget;
  private final Trainings trainings;
  private final BundleChoice bundle;
  private final Chat chat;

  /**
   * @param memoryLimitBytes the maximum memory of training on this device
   * @throws IOException if the app's own files cannot be read
   */
  public AppModel(AppFiles appFiles, long memoryLimitBytes) throws IOException {
    SafeFiles.recover(appFiles.copiedBundle());
    SafeFiles.recover(appFiles.run());
    settings = Settings.open(appFiles.settings());
    Computing computing = new Computing();
    examples = new Examples(appFiles, files, board);
    budget = new Budget(appFiles, files, computing, board, settings, memoryLimitBytes);
    trainings = new Trainings(appFiles, computing, budget, board);
    bundle = new BundleChoice(appFiles, files, computing, trainings, board, this::countAndPlan);
    chat = new Chat(appFiles, computing, trainings, board);
  }

  public Board board() {
    return board;
  }

  public BundleChoice bundle() {
    return bundle;
  }

  public Examples examples() {
    return examples;
  }

  public Budget budget() {
    return budget;
  }

  public Trainings trainings() {
    return trainings;
  }

  public Chat chat() {
    return chat;
  }

  /** Called when a window opens. Reads the bundle again, because it may have been pushed meanwhile. */
  public void look() {
    bundle.look();
    examples.count();
    if (!trainings.isOn()) budget.ask();
  }

  public boolean isNightly() {
    return settings.isNightly();
  }

  public void setNightly(boolean nightly) {
    settings.setNightly(nightly);
    settings.save(files, board);
  }

  /** Writes the adapter as a zip file of its PEFT folder. */
  public void export(Opening<OutputStream> file) {
    files.execute(
        () -> {
          try {
            File adapter = trainings.adapter();
            if (adapter == null) throw new IOException("There is no adapter yet. Train first.");
            AdapterZip.write(adapter, file.open());
            board.say("Adapter exported.");
          } catch (IOException e) {
            board.say(e);
          }
        });
  }

  private void countAndPlan() {
    examples.count();
    budget.forget();
  }
}
