package ai.mobileft.app;

import ai.mobileft.TrainingEvent;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * The one owner of what computes in this process, where one thing at a time may: a training, or a task such as a chat.
 * A task puts the training aside, saved, and the training goes on behind the last of them. Tasks run in one thread, in
 * the order in which they came.
 *
 * <p>Methods may be called from any thread, and return at once.
 */
final class Computing {
  /** Begins the session of a training, or goes on with it. */
  interface Beginning {
    TrainingSession begin(DeviceState device, SessionListener listener);
  }

  private final ExecutorService worker = Executors.newSingleThreadExecutor(task -> new Thread(task, "computing"));

  // All guarded by this.
  private DeviceState device = DeviceState.UNKNOWN;
  private Training training; // until its end; null: none
  private TrainingSession session; // of it; null: not begun, or put aside
  private int tasks = 0; // that wait or run

  /** Tells the training how the device is now. */
  synchronized void update(DeviceState now) {
    device = now;
    if (session != null) session.update(now);
  }

  /** Runs a task once nothing else computes. It has to catch what it throws. */
  void run(Runnable task) {
    synchronized (this) {
      ++tasks;
    }
    worker.execute(
        () -> {
          putAside();
          try {
            task.run();
          } finally {
            synchronized (this) {
              --tasks;
            }
            goOn();
          }
        });
  }

  /**
   * Trains, once no task is left.
   *
   * @param listener hears of one final state, the last of all; of being put aside it hears nothing
   * @throws IllegalStateException where there is a training that has not ended
   */
  synchronized void train(Beginning beginning, SessionListener listener) {
    if (training != null) throw new IllegalStateException("there is a training");
    training = new Training(beginning, listener);
    worker.execute(this::goOn);
  }

  /** Ends the training, if there is any, saved. Its listener hears of STOPPED, unless it has just ended otherwise. */
  synchronized void stop() {
    if (training == null) return;
    Training stopped = training;
    stopped.stopping = true;
    if (session != null) session.stop();
    worker.execute(
        () -> {
          if (stopped.ended) return;
          putAside();
          stopped.end(SessionState.STOPPED, "");
        });
  }

  /** In the worker: nothing trains when this returns. */
  private void putAside() {
    TrainingSession running;
    synchronized (this) {
      running = session;
      session = null;
    }
    if (running != null) running.close();
  }

  /** In the worker: begins the session of the training, if it is to have one now. */
  private synchronized void goOn() {
    if (tasks > 0 || training == null || training.stopping || session != null) return;
    session = training.beginning.begin(device, training);
  }

  private final class Training implements SessionListener {
    private final Beginning beginning;
    private final SessionListener listener;
    private boolean stopping = false; // guarded by the Computing
    private volatile boolean ended = false;

    Training(Beginning beginning, SessionListener listener) {
      this.beginning = beginning;
      this.listener = listener;
    }

    @Override
    public void onEvent(TrainingEvent event) {
      listener.onEvent(event);
    }

    @Override
    public void onState(SessionState state, String text) {
      if (state == SessionState.STOPPED) return; // put aside, or stop() tells of it
      if (state == SessionState.DONE || state == SessionState.FAILED) {
        end(state, text);
      } else {
        listener.onState(state, text);
      }
    }

    void end(SessionState state, String text) {
      synchronized (Computing.this) {
        if (ended) return;
        ended = true;
        training = null;
        session = null; // it computes no more
      }
      listener.onState(state, text);
    }
  }
}
