package ai.mobileft;

import java.util.function.Supplier;

/**
 * The runtime's rule on threads: of the calls that share one of these, one may run at a time. Another one fails at once,
 * be it from another thread or from within a listener.
 */
final class Turn {
  /** Of all that computes, on whatever object: it takes all cores. */
  static final Turn COMPUTING = new Turn();

  /** The call in progress; null: none. */
  private String running;

  /** @throws IllegalStateException where another call is running */
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
      throw new IllegalStateException(call + ": " + running + " is running, and only one call may run at a time");
    }
    running = call;
  }

  private synchronized void end() {
    running = null;
  }
}
