package ai.mobileft.app;

import ai.mobileft.MobileFtException;
import ai.mobileft.TrainOptions;
import ai.mobileft.TrainingEvent;
import java.io.File;
import java.io.IOException;
import java.util.Locale;

/** Starts, resumes, stops and describes the training of this app. There is only one at a time. */
public final class Trainings {
  /** For a training that the user starts: also on battery down to half of the charge, and with the screen on. */
  public static final TrainingPolicy NOW =
      new TrainingPolicy().withOnlyWhileCharging(false).withOnlyWhileScreenOff(false);

  /** For a training that starts automatically. */
  public static final DailyWindow NIGHT = new DailyWindow(22 * 60, 6 * 60);

  private static final TrainingPolicy AT_NIGHT = new TrainingPolicy().withWindow(NIGHT);
  private static final int CHART_POINTS = 200;

  private final AppFiles appFiles;
  private final Computing computing;
  private final Budget budget;
  private final Board board;

  // All fields are guarded by this.
  private boolean on = false;
  private TrainingPolicy policy; // policy of the current training
  private boolean stopping = false;
  private boolean wanted = false; // whether to resume after the end
  private SessionState state; // null: nothing has run in this process
  private String text = "";
  private long step = 0;
  private double loss = Double.NaN;
  private long nightStep = 0;
  private TrainingRun run; // null: there is none
  private final Nights nights;
  private LossChart chart = new LossChart(CHART_POINTS);

  Trainings(AppFiles appFiles, Computing computing, Budget budget, Board board) throws IOException {
    this.appFiles = appFiles;
    this.computing = computing;
    this.budget = budget;
    this.board = board;
    nights = new Nights(appFiles);
    run = TrainingRun.open(appFiles.run());
    if (run != null) run.log().addTo(chart);
    if (!chart.getPoints().isEmpty()) step = chart.getPoints().get(chart.getPoints().size() - 1).getStep();
  }

  /** Whether there is a training in this process, running or waiting. */
  public synchronized boolean isOn() {
    return on;
  }

  /** Whether it is computing, so that the device must not sleep. */
  public synchronized boolean isRunning() {
    return on && state == SessionState.RUNNING;
  }

  /** Whether there is an unfinished training. */
  public synchronized boolean isUnfinished() {
    return !on && run != null && run.getPhase() != TrainingRun.Phase.DONE;
  }

  /** Whether a training must resume automatically, because the process died. */
  public synchronized boolean isInterrupted() {
    return !on && run != null && run.getPhase() == TrainingRun.Phase.WANTED;
  }

  /** The folder of the adapter that was written last, by the training or at night, or null if there is none. */
  synchronized File adapter() {
    File trained = run != null && run.hasAdapter() ? run.out() : null;
    File learned = nights.adapter();
    if (trained == null || learned == null) return trained == null ? learned : trained;
    return written(learned) > written(trained) ? learned : trained;
  }

  private static long written(File adapter) {
    return new File(adapter, AdapterZip.WEIGHTS).lastModified();
  }

  /** Whether there is an adapter to use or export. */
  public boolean hasAdapter() {
    return adapter() != null;
  }

  public synchronized LossChart getChart() {
    return chart;
  }

  /** The steps of the current or latest training; 0 if there is none. */
  public synchronized int getSteps() {
    return run == null ? 0 : run.getSteps();
  }

  /** The latest step; 0 if there is none. */
  public synchronized long getStep() {
    return step;
  }

  /** The status, as a line for the user. */
  public synchronized String getStatus() {
    if (state == SessionState.FAILED) return "Failed: " + text;
    if (on && stopping) return "Stopping after this step.";
    if (on && state != SessionState.RUNNING) return text;
    if (on && policy == AT_NIGHT) return "Learning from new examples, step " + nightStep + ".";
    if (run == null) return "Not trained yet.";
    String place = "tep " + step + " of " + run.getSteps();
    String last = Double.isNaN(loss) ? "" : String.format(Locale.getDefault(), ", loss %.3f", loss);
    if (on) return "S" + place + last;
    return run.getPhase() == TrainingRun.Phase.DONE ? "Done" + last + "." : "Stopped at s" + place + last + ".";
  }

  /** What the last night decided, as a line for the user; "" if there was none. */
  public String getNightStatus() {
    return nights.getStatus();
  }

  /** Starts a training on the current examples, which replaces the previous one. */
  public void begin() {
    start(NOW, () -> work(prepared()));
  }

  /** Resumes the unfinished training. */
  public void goOn() {
    start(NOW, () -> run == null || run.getPhase() == TrainingRun.Phase.DONE ? null : work(run));
  }

  /** Learns from the examples that are new since the last night, if there are any. */
  public void learnAtNight() {
    start(AT_NIGHT, this::night);
  }

  /** Stops the training. It resumes when the user requests it. */
  public void stop() {
    end(false);
  }

  /** Stops the training at the system's request. It resumes automatically. */
  public void interrupt() {
    end(true);
  }

  /** Whether the current training was started by {@link #learnAtNight}. */
  public synchronized boolean isOnAtNight() {
    return on && policy == AT_NIGHT;
  }

  /** Called when the model is another one, which cannot use what was learned at night. */
  void forgetNights() throws IOException {
    nights.clear();
  }

  public void update(DeviceState device) {
    computing.update(device);
  }

  private interface Choice {
    /** Returns what to compute, or null if there is nothing to do. Runs in the computing thread. */
    Work get() throws IOException;
  }

  private void start(TrainingPolicy policy, Choice choice) {
    synchronized (this) {
      if (on) return;
      on = true;
      this.policy = policy;
      stopping = false;
      wanted = true;
      state = SessionState.WAITING;
      text = "Preparing the training.";
      loss = Double.NaN;
    }
    board.say("");
    computing.run(
        () -> {
          try {
            Work chosen = choice.get();
            if (chosen == null) {
              ended(null, "");
            } else {
              compute(chosen, policy);
            }
          } catch (IOException | MobileFtException e) {
            ended(SessionState.FAILED, Board.line(e));
          }
        });
  }

  private TrainingRun prepared() throws IOException {
    if (appFiles.bundle() == null) throw new IOException("choose a model first");
    TrainingRun made = // written beside the old one, whose adapter is kept if this fails
        TrainingRun.prepare(
            appFiles.run(), appFiles.bundle(), appFiles.rows(), budget.getSteps(), budget.megabytes());
    synchronized (this) {
      step = 0;
      chart = new LossChart(CHART_POINTS);
    }
    return made;
  }

  private Work work(TrainingRun chosen) throws IOException {
    if (appFiles.bundle() == null) throw new IOException("choose a model first");
    chosen.setPhase(TrainingRun.Phase.WANTED);
    synchronized (this) {
      run = chosen;
    }
    return new TrainerWork(appFiles.bundle(), chosen.tokens(), chosen.out(), chosen.options());
  }

  private Work night() {
    if (appFiles.bundle() == null) return null;
    long rows = TrainingRun.count(appFiles.bundle(), appFiles.rows());
    return rows == nights.getRows() ? null : nights.night(rows, budget.megabytes());
  }

  private void compute(Work work, TrainingPolicy policy) {
    boolean stopped;
    synchronized (this) {
      stopped = stopping;
      if (!stopped) {
        computing.train(
            (device, listener) -> TrainingSession.begin(work, policy, device, listener),
            new Listener(policy == AT_NIGHT ? null : run));
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

  /** Called at the end, with a final state, or null if there was nothing to do. */
  private void ended(SessionState end, String why) {
    TrainingRun over;
    boolean rests;
    synchronized (this) {
      over = policy == AT_NIGHT ? null : run; // a night keeps its own state
      rests = end == SessionState.FAILED || end == SessionState.STOPPED && !wanted;
    }
    try { // not under the lock, because the main thread may wait for it
      if (end == SessionState.DONE && over != null) over.setPhase(TrainingRun.Phase.DONE);
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
    private final TrainingRun of; // null: a night

    Listener(TrainingRun of) {
      this.of = of;
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
      if (of == null) {
        synchronized (Trainings.this) {
          nightStep = event.getStep();
        }
      } else {
        addStep(event);
      }
      board.changed();
    }

    private void addStep(TrainingEvent event) {
      synchronized (Trainings.this) {
        step = event.getStep();
        loss = event.getLoss();
        chart.add(step, loss, event.getRssBytes());
      }
      try {
        of.log().add(event.getStep(), event.getLoss(), event.getRssBytes());
      } catch (IOException e) {
        board.say(e); // only affects the chart
      }
    }
  }
}
