package ai.mobileft.app;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotNull;
import static org.junit.Assert.assertNull;

import ai.mobileft.TrainingEvent;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.LongConsumer;

/** Hears of sessions of one training, and does what a test wants in their threads. */
final class Recorder implements SessionListener {
  private static final Set<SessionState> FINAL =
      EnumSet.of(SessionState.DONE, SessionState.FAILED, SessionState.STOPPED);

  private final BlockingQueue<Object[]> states = new LinkedBlockingQueue<>();
  private final List<Double> losses = new ArrayList<>();
  private final List<Long> steps = new ArrayList<>();
  private int pauses = 0;
  private volatile LongConsumer atStep = step -> {};
  private volatile Consumer<SessionState> atState = state -> {};

  /** What to do in the listener, after each step. */
  void atStep(LongConsumer action) {
    atStep = action;
  }

  void atState(Consumer<SessionState> action) {
    atState = action;
  }

  @Override
  public void onState(SessionState state, String text) {
    if (state == SessionState.PAUSED) ++pauses;
    states.add(new Object[] {state, text});
    atState.accept(state);
  }

  @Override
  public void onEvent(TrainingEvent event) {
    if (!event.getKind().equals("step")) return;
    synchronized (this) {
      losses.add(event.getLoss());
      steps.add(event.getStep());
    }
    atStep.accept(event.getStep());
  }

  synchronized List<Double> losses() {
    return new ArrayList<>(losses);
  }

  synchronized List<Long> steps() {
    return new ArrayList<>(steps);
  }

  /** Once all sessions ended. */
  int pauses() {
    return pauses;
  }

  /** Waits for the next state, which must be this one, and returns its text. */
  String next(SessionState expected) {
    Object[] next = poll(60_000);
    assertNotNull("nothing was heard while waiting for " + expected, next);
    assertEquals((String) next[1], expected, next[0]);
    return (String) next[1];
  }

  /** Waits for this state, be there others before, and returns its text. */
  String await(SessionState expected) {
    while (true) {
      Object[] next = poll(60_000);
      assertNotNull("nothing was heard while waiting for " + expected, next);
      if (next[0] == expected) return (String) next[1];
      assertFalse(next[0] + " " + next[1], FINAL.contains(next[0]));
    }
  }

  /** What was heard and not waited for. */
  void forget() {
    states.clear();
  }

  /** Waits for any state, but no longer than this. */
  void hearsSomethingNew(long milliseconds) {
    forget();
    poll(milliseconds);
  }

  void hearsNothing() {
    Object[] next = poll(200);
    assertNull(next == null ? "" : next[0] + " " + next[1], next);
  }

  private Object[] poll(long milliseconds) {
    try {
      return states.poll(milliseconds, TimeUnit.MILLISECONDS);
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }
}
