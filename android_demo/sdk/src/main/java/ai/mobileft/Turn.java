package ai.mobileft;

import java.util.function.Supplier;

/**
 * Admits one call at a time to an object. Another call fails at once, whether it comes from another thread or from a
 * listener.
 */
final class Turn {
  /** The call in progress; null: none. */
  private String running;

  /** @throws BusyException if another call is in progress */
  <T> T take(String call, Supplier<T> body) {
    begin(call);
    try {
      return body.get();
    } finally {
      end();
    }
  }

  private synchronized void begin(String call) {
    if (running != null) {
      throw new BusyException(call + ": busy, because " + running + " is running on the same object");
    }
    running = call;
  }

  private synchronized void end() {
    running = null;
  }
}
