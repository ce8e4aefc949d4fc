package ai.mobileft.app;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/** Who wants to hear that something on the screen changed, and the latest message to the user. */
public final class Board {
  private final List<Runnable> observers = new CopyOnWriteArrayList<>();
  private volatile String message = "";

  /** From now on {@code observer} runs after each change, in the thread that made it, and must not take long. */
  public void observe(Runnable observer) {
    observers.add(observer);
  }

  public void forget(Runnable observer) {
    observers.remove(observer);
  }

  /** What went wrong, or came of what the user did last; empty: nothing to tell. */
  public String getMessage() {
    return message;
  }

  public void say(String text) {
    message = text;
    changed();
  }

  void say(Exception e) {
    say(line(e));
  }

  /** What went wrong; of what has no message, its kind. */
  static String line(Throwable e) {
    return e.getMessage() == null ? e.toString() : e.getMessage();
  }

  void changed() {
    for (Runnable observer : observers) observer.run();
  }
}
