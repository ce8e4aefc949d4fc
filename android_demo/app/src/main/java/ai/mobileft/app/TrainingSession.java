package ai.mobileft.app;

import ai.mobileft.MobileFtException;

/**
 * A training in its own thread. It runs while the policy allows it; otherwise, it saves what it can, frees its memory
 * and waits. What was saved is resumed: after a pause, a killed process, or a reboot.
 *
 * <p>Methods can be called from any thread, but {@code close} must not be called from within the listener. All methods
 * except {@code close} return at once. If the listener throws, the training ends as FAILED.
 *
 * <p>While a session exists, nothing else in this process can plan, evaluate or generate. Close it first, and start
 * another one for the same folder afterwards.
 */
public final class TrainingSession implements AutoCloseable {
  private final Work work;
  private final TrainingPolicy policy;
  private final SessionListener listener;
  private final Thread worker = new Thread(this::run, "training");

  /** The latest state of the device. This and the next field are guarded by {@code this}. */
  private DeviceState device;
  private boolean stopped;

  private TrainingSession(Work work, TrainingPolicy policy, DeviceState device, SessionListener listener) {
    this.work = work;
    this.policy = policy;
    this.device = device;
    this.listener = listener;
  }

  /**
   * Starts or resumes a training. The listener may be called before this returns.
   *
   * @param device the current state of the device; {@link #update} reports changes
   */
  static TrainingSession begin(Work work, TrainingPolicy policy, DeviceState device, SessionListener listener) {
    TrainingSession session = new TrainingSession(work, policy, device, listener);
    session.worker.start();
    return session;
  }

  /** Updates the state of the device. The latest state is used after the current step. */
  public synchronized void update(DeviceState now) {
    device = now;
    notifyAll();
  }

  /** Ends the session after the current step. */
  public synchronized void stop() {
    stopped = true;
    notifyAll();
  }

  /** Stops and waits for the end. The listener is not called afterwards. */
  @Override
  public void close() {
    if (Thread.currentThread() == worker) throw new IllegalStateException("close: the listener would wait for itself");
    stop();
    boolean interrupted = false;
    while (worker.isAlive()) {
      try {
        worker.join();
      } catch (InterruptedException e) {
        interrupted = true; // restored for the caller, because this must wait for the step
      }
    }
    if (interrupted) Thread.currentThread().interrupt();
  }

  private void run() {
    SessionState end = SessionState.STOPPED;
    String text = "";
    try {
      SessionState idle = SessionState.WAITING;
      while (end != SessionState.DONE && awaitPermission(idle)) {
        listener.onState(SessionState.RUNNING, "");
        if (work.run(this::mayGoOn, listener)) end = SessionState.DONE;
        idle = SessionState.PAUSED;
      }
    } catch (MobileFtException e) {
      end = SessionState.FAILED;
      text = e.getMessage();
    } catch (RuntimeException e) { // a bug of the app: its class is more useful than its message
      end = SessionState.FAILED;
      text = e.toString();
    }
    listener.onState(end, text);
  }

  /** Waits in the state {@code idle}. Returns whether to train, or false if the session was stopped. */
  private boolean awaitPermission(SessionState idle) {
    String told = null;
    while (true) {
      String reason = awaitOtherReason(idle == SessionState.PAUSED, told);
      if (reason == null) return !isStopped();
      listener.onState(idle, reason);
      told = reason;
    }
  }

  /** Waits while the reason not to train is the same. Returns the new reason, or null if there is none or on stop. */
  private synchronized String awaitOtherReason(boolean paused, String told) {
    while (true) {
      String reason = stopped ? null : policy.reasonToPause(device, paused);
      if (reason == null || !reason.equals(told)) return reason;
      try {
        wait();
      } catch (InterruptedException e) {
        throw new AssertionError(e); // this thread is never interrupted
      }
    }
  }

  private synchronized boolean isStopped() {
    return stopped;
  }

  private synchronized boolean mayGoOn() {
    return !stopped && policy.reasonToPause(device, false) == null;
  }
}
