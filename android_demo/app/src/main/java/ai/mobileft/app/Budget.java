package ai.mobileft.app;

import ai.mobileft.Bundle;
import ai.mobileft.MobileFtException;
import ai.mobileft.TrainOptions;
import java.io.File;
import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicInteger;

/** The user's settings of training time and memory, and the runtime's plan for them. */
public final class Budget {
  private final AppFiles appFiles;
  private final Executor files;
  private final Computing computing;
  private final Board board;
  private final long limitBytes;
  private final Settings settings;

  private BudgetSlider slider; // used in the computing thread; null: not planned yet
  private final AtomicInteger asked = new AtomicInteger();
  private volatile String text = "";

  Budget(
      AppFiles appFiles, Executor files, Computing computing, Board board, Settings settings, long limitBytes) {
    this.appFiles = appFiles;
    this.files = files;
    this.computing = computing;
    this.board = board;
    this.settings = settings;
    this.limitBytes = limitBytes;
  }

  public int getSteps() {
    return settings.getSteps();
  }

  /** The slider's position, 0 to 100. */
  public int getPosition() {
    return settings.getPosition();
  }

  /** A description of the position, or the reason why it is not possible; "" until it is known. */
  public String getText() {
    return text;
  }

  /** Saves both values and requests a plan. Of several pending requests, only the last counts. */
  public void set(int steps, int position) {
    settings.setSteps(steps);
    settings.setPosition(position);
    settings.save(files, board);
    ask();
  }

  /** Requests a plan, unless a training is running, which would be paused for it. */
  void ask() {
    int number = asked.incrementAndGet();
    if (appFiles.bundle() == null) return;
    computing.run(
        () -> {
          if (number != asked.get()) return;
          try {
            text = slider().describe(getPosition(), getSteps());
          } catch (MobileFtException e) {
            text = Board.line(e);
          }
          board.changed();
        });
  }

  /** Called when the bundle has changed. */
  void forget() {
    computing.run(() -> slider = null);
    ask();
  }

  /** Runs in the computing thread. */
  long megabytes() {
    return slider().budgetMb(getPosition());
  }

  private BudgetSlider slider() {
    if (slider == null) {
      File bundle = appFiles.bundle();
      TrainOptions options = TrainingRun.options(bundle, getSteps());
      slider =
          new BudgetSlider(
              limitBytes,
              budget -> {
                options.set("budget", Long.toString(budget));
                try (Bundle opened = Bundle.open(bundle)) {
                  return opened.plan(options);
                }
              });
    }
    return slider;
  }
}
