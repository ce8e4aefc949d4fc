package ai.mobileft.app;

import ai.mobileft.MobileFtException;
import ai.mobileft.TrainOptions;
import ai.mobileft.TrainingEvent;
import java.io.File;
import java.io.IOException;
import java.util.Locale;

/** The training of this app, of which there is one at a time: begins it, goes on with it, ends it, and tells of it. */
public final class Trainings {
  /** At what the user asks for now: also on battery, while half of that is left, and with the screen on. */
  public static final TrainingPolicy NOW =
      new TrainingPolicy().withOnlyWhileCharging(false).withOnlyWhileScreenOff(false);

  /** When to train unasked. */
  public static final DailyWindow NIGHT = new DailyWindow(22 * 60, 6 * 60);

  private static final TrainingPolicy AT_NIGHT = new TrainingPolicy().withWindow(NIGHT);
  private static final int CHART_POINTS = 200;

  private final AppFiles appFiles;
  private final Computing computing;
  private final Budget budget;
  private final Board board;

  // All guarded by this.
  private boolean on = false;
  private TrainingPolicy policy; // of the training that is on
  private boolean stopping = false;
  private boolean wanted = false; // to go on with after the end, whose doing that ever was
  private SessionState state; // null: nothing happened in this process
  private String text = "";
  private long step = 0;
  private double loss = Double.NaN;
  private TrainingRun run; // null: none
  private LossChart chart = new LossChart(CHART_POINTS);

  Trainings(AppFiles appFiles, Computing computing, Budget budget, Board board) throws IOException {
    this.appFiles = appFiles;
    this.computing = computing;
    this.budget = budget;
    this.board = board;
    run = TrainingRun.open(appFiles.run());
    if (run != null) run.log().addTo(chart);
    if (!chart.getPoints().isEmpty()) step = chart.getPoints().get(chart.getPoints().size() - 1).getStep();
  }

  /** Whether there is a training in this process, be it that it waits. */
  public synchronized boolean isOn() {
    return on;
  }

  /** Whether it computes, so that the device must not sleep. */
  public synchronized boolean isRunning() {
    return on && state == SessionState.RUNNING;
  }

  /** Whether there is one to go on with. */
  public synchronized boolean isUnfinished() {
    return !on && run != null && run.getPhase() != TrainingRun.Phase.DONE;
  }

  /** Whether there is one to go on with unasked, as the process died. */
  public synchronized boolean isInterrupted() {
    return !on && run != null && run.getPhase() == TrainingRun.Phase.WANTED;
  }

  /** Where the latest adapter lies; null: none is saved. */
  synchronized File adapter() {
    return run != null && run.hasAdapter() ? run.out() : null;
  }

  /** Whether there is an adapter to answer with, or to export. */
  public boolean hasAdapter() {
    return adapter() != null;
  }

  public synchronized LossChart getChart() {
    return chart;
  }

  /** Of the training that is on, or the latest one; 0 where there is none. */
  public synchronized int getSteps() {
    return run == null ? 0 : run.getSteps();
  }

  /** The latest step that was made; 0: none. */
  public synchronized long getStep() {
    return step;
  }

  /** Where it stands, in a line for the user. */
  public synchronized String getStatus() {
    if (state == SessionState.FAILED) return "Failed: " + text;
    if (on && stopping) return "Stops after this step.";
    if (on && state != SessionState.RUNNING) return text;
    if (run == null) return "Not trained yet.";
    String place = "tep " + step + " of " + run.getSteps();
    String last = Double.isNaN(loss) ? "" : String.format(Locale.getDefault(), ", loss %.3f", loss);
    if (on) return "S" + place + last;
    return run.getPhase() == TrainingRun.Phase.DONE ? "Done" + last + "." : "Stopped at s" + place + last + ".";
  }

  /** Begins a training of the examples as they are now, in place of the one before. */
  public void begin() {
    start(NOW, this::prepared);
  }

  /** Goes on with the one that is not finished. */
  public void goOn() {
    start(NOW, () -> run == null || run.getPhase() == TrainingRun.Phase.DONE ? null : run);
  }

  /** Goes on with the one that is not finished, or begins one where there are other examples than the last one had. */
  public void trainAtNight() {
    start(AT_NIGHT, this::dueAtNight);
  }

  /** Ends it; it goes on where the user says so, or at night. */
  public void stop() {
    end(false);
  }

  /** Ends it, as the system wants so; it goes on by itself. */
  public void interrupt() {
    end(true);
  }

  /** Whether there is a training that {@link #trainAtNight} began. */
  public synchronized boolean isOnAtNight() {
    return on && policy == AT_NIGHT;
  }

  public void update(DeviceState device) {
    computing.update(device);
  }

  private interface Choice {
    /** The run to train; null: there is nothing to do. In the thread that computes. */
    TrainingRun get() throws IOException;
  }

  private void start(TrainingPolicy policy, Choice choice) {
    synchronized (this) {
      if (on) return;
      on = true;
      this.policy = policy;
      stopping = false;
      wanted = true;
      state = SessionState.WAITING;
      text = "Prepares the training.";
      loss = Double.NaN;
    }
    board.say("");
    computing.run(
        () -> {
          try {
            TrainingRun chosen = choice.get();
            if (chosen == null) {
              ended(null, "");
            } else {
              train(chosen, policy);
            }
          } catch (IOException | MobileFtException e) {
            ended(SessionState.FAILED, Board.line(e));
          }
        });
  }

  private TrainingRun prepared() throws IOException {
    if (appFiles.bundle() == null) throw new IOException("choose a model first");
    TrainingRun made = // writes beside the old one, whose adapter stays if this fails
        TrainingRun.prepare(
            appFiles.run(), appFiles.bundle(), appFiles.rows(), budget.getSteps(), budget.megabytes());
    synchronized (this) {
      step = 0;
      chart = new LossChart(CHART_POINTS);
    }
    return made;
  }

  private TrainingRun dueAtNight() throws IOException {
    if (run != null && run.getPhase() == TrainingRun.Phase.WANTED) return run;
    if (run != null && run.getPhase() == TrainingRun.Phase.AT_NIGHT) return run;
    if (appFiles.bundle() == null) return null;
    long rows = TrainingRun.count(appFiles.bundle(), appFiles.rows());
    if (rows != (run == null ? 0 : run.getRows())) return prepared();
    return run == null || run.getPhase() == TrainingRun.Phase.DONE ? null : run;
  }

  private void train(TrainingRun chosen, TrainingPolicy policy) throws IOException {
    File bundle = appFiles.bundle();
    if (bundle == null) throw new IOException("choose a model first");
    TrainOptions options = chosen.options();
    chosen.setPhase(policy == AT_NIGHT ? TrainingRun.Phase.AT_NIGHT : TrainingRun.Phase.WANTED);
    boolean stopped;
    synchronized (this) {
      run = chosen;
      stopped = stopping;
      if (!stopped) {
        computing.train(
            (device, listener) ->
                TrainingSession.begin(
                    bundle, chosen.tokens(), chosen.out(), options, policy, device, listener),
            new Listener(chosen.log()));
      }
    }
    if (stopped) ended(SessionState.STOPPED, "");
  }

  private void end(boolean goesOn) {
    synchronized (this) {
      if (!on) return;
      stopping = true;
      wanted = goesOn;
      computing.stop();
    }
    board.changed();
  }

  /** It is over: with a final state, or null where nothing was to do. */
  private void ended(SessionState end, String why) {
    TrainingRun over;
    boolean rests;
    synchronized (this) {
      over = run;
      rests = end == SessionState.FAILED || end == SessionState.STOPPED && !wanted;
    }
    try { // not under the lock, for which the main thread may wait
      if (end == SessionState.DONE) over.setPhase(TrainingRun.Phase.DONE);
      if (rests && over != null && over.getPhase() != TrainingRun.Phase.DONE) {
        over.setPhase(TrainingRun.Phase.RESTING);
      }
    } catch (IOException e) {
      board.say(e);
    }
    synchronized (this) {
      on = false;
      state = end;
      text = why;
    }
    board.changed();
  }

  private final class Listener implements SessionListener {
    private final StepLog log;

    Listener(StepLog log) {
      this.log = log;
    }

    @Override
    public void onState(SessionState now, String why) {
      if (now == SessionState.DONE || now == SessionState.FAILED || now == SessionState.STOPPED) {
        ended(now, why);
        return;
      }
      synchronized (Trainings.this) {
        state = now;
        text = why;
      }
      board.changed();
    }

    @Override
    public void onEvent(TrainingEvent event) {
      if (!event.getKind().equals("step")) return;
      synchronized (Trainings.this) {
        step = event.getStep();
        loss = event.getLoss();
        chart.add(step, loss, event.getRssBytes());
      }
      try {
        log.add(event.getStep(), event.getLoss(), event.getRssBytes());
      } catch (IOException e) {
        board.say(e); // the chart alone is the poorer
      }
      board.changed();
    }
  }
}
