package ai.mobileft.app;

import static org.junit.Assert.assertTrue;

import java.util.function.BooleanSupplier;

/** Waits for what other threads do. */
final class Waiting {
  private static final long SECONDS = 60;

  private Waiting() {}

  static void until(String what, BooleanSupplier condition) {
    long end = System.nanoTime() + SECONDS * 1_000_000_000;
    while (!condition.getAsBoolean()) {
      assertTrue("waited for " + what, System.nanoTime() < end);
      try {
        Thread.sleep(2);
      } catch (InterruptedException e) {
        throw new AssertionError(e);
      }
    }
  }
}
