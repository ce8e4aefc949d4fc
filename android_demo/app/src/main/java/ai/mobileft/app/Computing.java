package ai.mobileft.app;

import ai.mobileft.TrainingEvent;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Owns all computation in this process, of which only one can run at a time: a training, or a task such as a chat. A
 * task pauses the training with a checkpoint, and the training resumes after the last task. Tasks run in one thread, in
 * the order of their arrival.
 *
 * <p>Methods can be called from any thread, and return at once.
 */
final class Computing {
  /** Starts or resumes the session of a training. */
  interface Beginning {
    TrainingSession begin(DeviceState device, SessionListener listener);
  }

  private final ExecutorService worker = Executors.newSingleThreadExecutor(task -> new Thread(task, "computing"));

  // All fields are guarded by this.
  private DeviceState device = DeviceState.UNKNOWN;
  private Training training; // null: there is none, or it has ended
  private TrainingSession session; // its session; null: not started, or paused for a task
  private int tasks = 0; // waiting and running tasks

  /** Passes the device's state to the training. */
  synchronized void update(DeviceState now) {
    device = now;
    if (session != null) session.update(now);
  }

  /** Runs a task when nothing else computes. The task must catch its exceptions. */
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
   * Trains when no task is left.
   *
   * @param listener receives one final state, as its last event. It is not notified of pauses for tasks
   * @throws IllegalStateException if another training has not ended
   */
  synchronized void train(Beginning beginning, SessionListener listener) {
    if (training != null) throw new IllegalStateException("another training has not ended");
    training = new Training(beginning, listener);
    worker.execute(this::goOn);
  }

  /** Ends the training, if there is one, with a checkpoint. Its listener receives STOPPED, unless it has just ended. */
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

  /** Runs in the worker: nothing trains when this returns. */
  private void putAside() {
    TrainingSession running;
    synchronized (this) {
      running = session;
      session = null;
    }
    if (running != null) running.close();
  }

  /** Runs in the worker: starts the session of the training, if it should run now. */
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
      if (state == SessionState.STOPPED) return; // paused for a task, or stop() reports it
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
        session = null; // it does not compute any more
      }
      listener.onState(state, text);
    }
  }
}
