package ai.mobileft;

import java.util.function.Supplier;

/**
 * Admits one call at a time to an object. A second call, from another thread or from within a listener, fails at once.
 */
final class Turn {
  /** The running call, or null. */
  private String running;

  /** @throws BusyException if another call is running */
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
