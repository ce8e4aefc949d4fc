package ai.mobileft.app;

import ai.mobileft.Bundle;
import ai.mobileft.MobileFtException;
import ai.mobileft.TrainOptions;
import java.io.File;
import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicInteger;

/** How long to train, and in how much memory: what the user sets, and what the runtime's plan says to it. */
public final class Budget {
  private final AppFiles appFiles;
  private final Executor files;
  private final Computing computing;
  private final Board board;
  private final long limitBytes;
  private final Settings settings;

  private BudgetSlider slider; // in the thread that computes; null: not asked yet
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

  /** Of the slider, 0 to 100. */
  public int getPosition() {
    return settings.getPosition();
  }

  /** What the position means, or why it cannot be; empty until that is known. */
  public String getText() {
    return text;
  }

  /** Takes both down, and asks for the plan; of those asked for at once, the last one counts. */
  public void set(int steps, int position) {
    settings.setSteps(steps);
    settings.setPosition(position);
    settings.save(files, board);
    ask();
  }

  /** Asks for the plan. Not while a training is on, which would be put aside for it. */
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

  /** There is another bundle. */
  void forget() {
    computing.run(() -> slider = null);
    ask();
  }

  /** In the thread that computes. */
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
