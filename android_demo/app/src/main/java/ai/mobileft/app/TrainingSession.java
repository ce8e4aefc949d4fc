package ai.mobileft.app;

import ai.mobileft.MobileFtException;
import ai.mobileft.TrainOptions;
import ai.mobileft.Trainer;
import ai.mobileft.TrainingFiles;
import ai.mobileft.TrainingStoppedException;
import java.io.File;

/**
 * One training in a thread of its own, which runs while the policy allows it and else waits, saved and with its memory
 * freed. A session of a folder that holds a checkpoint goes on from there: after a pause, a process that was killed, or
 * a reboot.
 *
 * <p>Methods may be called from any thread, but {@code close} not from within the listener. All but {@code close}
 * return at once. What the listener throws ends the training, saved, as FAILED.
 *
 * <p>While it may train, nothing else in this process can plan, evaluate or generate: close it before, and begin
 * another one of the same folder behind it.
 */
public final class TrainingSession implements AutoCloseable {
  private final File bundle;
  private final File tokens;
  private final File out;
  private final TrainOptions options;
  private final TrainingPolicy policy;
  private final SessionListener listener;
  private final Thread worker = new Thread(this::work, "training");

  /** The latest that was told; guarded by {@code this}, as is the next. */
  private DeviceState device;
  private boolean stopped;

  private TrainingSession(
      File bundle,
      File tokens,
      File out,
      TrainOptions options,
      TrainingPolicy policy,
      DeviceState device,
      SessionListener listener) {
    this.bundle = bundle;
    this.tokens = tokens;
    this.out = out;
    this.options = options;
    this.policy = policy;
    this.device = device;
    this.listener = listener;
  }

  /**
   * Begins a training, or goes on with it. The listener may hear of it before this returns.
   *
   * @param bundle folder of the training bundle
   * @param tokens token file, written with the same options
   * @param out folder for adapter and checkpoint; where it has one, it must be of the same bundle, tokens and options
   * @param options not to be changed any more
   * @param device as it is now; {@link #update} tells of changes
   */
  public static TrainingSession begin(
      File bundle,
      File tokens,
      File out,
      TrainOptions options,
      TrainingPolicy policy,
      DeviceState device,
      SessionListener listener) {
    TrainingSession session = new TrainingSession(bundle, tokens, out, options, policy, device, listener);
    session.worker.start();
    return session;
  }

  /** Tells how the device is now. The latest counts, as soon as the step in progress is over. */
  public synchronized void update(DeviceState now) {
    device = now;
    notifyAll();
  }

  /** Ends it for good after the step in progress, saved. */
  public synchronized void stop() {
    stopped = true;
    notifyAll();
  }

  /** Stops, and waits for the end; the listener hears nothing after that. */
  @Override
  public void close() {
    if (Thread.currentThread() == worker) throw new IllegalStateException("close: the listener would wait for itself");
    stop();
    boolean interrupted = false;
    while (worker.isAlive()) {
      try {
        worker.join();
      } catch (InterruptedException e) {
        interrupted = true; // for the caller to see, as this cannot end before the step does
      }
    }
    if (interrupted) Thread.currentThread().interrupt();
  }

  private void work() {
    SessionState end = SessionState.STOPPED;
    String text = "";
    try {
      SessionState idle = SessionState.WAITING;
      while (end != SessionState.DONE && awaitPermission(idle)) {
        if (train()) end = SessionState.DONE;
        idle = SessionState.PAUSED;
      }
    } catch (MobileFtException e) {
      end = SessionState.FAILED;
      text = e.getMessage();
    } catch (RuntimeException e) { // a mistake of the app: its kind tells more than its message
      end = SessionState.FAILED;
      text = e.toString();
    }
    listener.onState(end, text);
  }

  /** Returns whether to train; false: stopped. Meanwhile the session is {@code idle}. */
  private boolean awaitPermission(SessionState idle) {
    String told = null;
    while (true) {
      String reason = awaitOtherReason(idle == SessionState.PAUSED, told);
      if (reason == null) return !isStopped();
      listener.onState(idle, reason);
      told = reason;
    }
  }

  /** Waits while there is the same reason not to train; null: there is none, or it is stopped. */
  private synchronized String awaitOtherReason(boolean paused, String told) {
    while (true) {
      String reason = stopped ? null : policy.reasonToPause(device, paused);
      if (reason == null || !reason.equals(told)) return reason;
      try {
        wait();
      } catch (InterruptedException e) {
        throw new AssertionError(e); // nobody else has this thread
      }
    }
  }

  private synchronized boolean isStopped() {
    return stopped;
  }

  private synchronized boolean mayGoOn() {
    return !stopped && policy.reasonToPause(device, false) == null;
  }

  /** Trains while allowed. Returns whether all steps are made; what was made is saved. */
  private boolean train() {
    listener.onState(SessionState.RUNNING, "");
    TrainingFiles files = new TrainingFiles(bundle, tokens, out);
    if (new File(out, "checkpoint.safetensors").exists()) files.resume();
    try (Trainer trainer = Trainer.open(files, options)) {
      boolean stepped = false;
      while (mayGoOn()) {
        if (!trainer.step(listener)) return true;
        stepped = true;
      }
      if (stepped) save(trainer);
    }
    return false;
  }

  private void save(Trainer trainer) {
    trainer.cancel();
    try {
      trainer.step(listener);
    } catch (TrainingStoppedException saved) {
      // as it was asked to
    }
  }
}
