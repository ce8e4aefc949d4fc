package ai.mobileft.app;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/** Notifies observers of changes on the screen, and has the latest message to the user. */
public final class Board {
  private final List<Runnable> observers = new CopyOnWriteArrayList<>();
  private volatile String message = "";

  /** Adds an observer, which runs after each change in the changing thread. It must not take long. */
  public void observe(Runnable observer) {
    observers.add(observer);
  }

  public void forget(Runnable observer) {
    observers.remove(observer);
  }

  /** The error, or the result of the user's last action; "" if there is no message. */
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

  /** Shows an error. If it has no message, shows its class. */
  static String line(Throwable e) {
    return e.getMessage() == null ? e.toString() : e.getMessage();
  }

  void changed() {
    for (Runnable observer : observers) observer.run();
  }
}
