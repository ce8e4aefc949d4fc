package ai.mobileft.demo;

import android.os.Handler;
import android.os.Looper;

/** Runs something in the main thread soon after it was asked for, however often that is. */
final class OnMain implements Runnable {
  private final Handler handler = new Handler(Looper.getMainLooper());
  private final long milliseconds;
  private final Runnable body;
  private boolean asked = false; // guarded by this, as is the next
  private boolean cancelled = false;

  /** {@code milliseconds}: how soon, and so how often at most. */
  OnMain(long milliseconds, Runnable body) {
    this.milliseconds = milliseconds;
    this.body = body;
  }

  /** From any thread. */
  @Override
  public synchronized void run() {
    if (asked || cancelled) return;
    asked = true;
    handler.postDelayed(this::now, milliseconds);
  }

  /** In the main thread: it does not run any more. */
  synchronized void cancel() {
    cancelled = true;
  }

  private void now() {
    synchronized (this) {
      asked = false;
      if (cancelled) return;
    }
    body.run();
  }
}
