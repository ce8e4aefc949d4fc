package ai.mobileft.demo;

import android.os.Handler;
import android.os.Looper;

/** Runs an action in the main thread soon after a request. Several requests are combined. */
final class OnMain implements Runnable {
  private final Handler handler = new Handler(Looper.getMainLooper());
  private final long milliseconds;
  private final Runnable body;
  private boolean asked = false; // this and the next field are guarded by this
  private boolean cancelled = false;

  /** {@code milliseconds} is the delay, and thus the minimum interval. */
  OnMain(long milliseconds, Runnable body) {
    this.milliseconds = milliseconds;
    this.body = body;
  }

  /** Can be called from any thread. */
  @Override
  public synchronized void run() {
    if (asked || cancelled) return;
    asked = true;
    handler.postDelayed(this::now, milliseconds);
  }

  /** Must be called in the main thread. The action does not run afterwards. */
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
