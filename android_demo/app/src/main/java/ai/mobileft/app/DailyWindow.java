package ai.mobileft.app;

import java.util.Locale;

/** The time of day at which to train, such as 22:00 to 6:00. Minutes of the day are local time, 0 to 1439. */
public final class DailyWindow {
  public static final DailyWindow ALL_DAY = new DailyWindow(0, 0);

  private static final int DAY = 24 * 60;

  private final int from;
  private final int to;

  /** If {@code to} is before {@code from}, the window passes midnight. If they are equal, it is the whole day. */
  public DailyWindow(int from, int to) {
    if (from < 0 || from >= DAY || to < 0 || to >= DAY) {
      throw new IllegalArgumentException("from " + from + " to " + to + ": must be minutes of the day, from 0 to 1439");
    }
    this.from = from;
    this.to = to;
  }

  /** Whether the window is open. The minute {@code to} is excluded. */
  public boolean contains(int minuteOfDay) {
    if (from == to) return true;
    return minutesBetween(from, minuteOfDay) < minutesBetween(from, to);
  }

  /** Minutes until the window opens, for JobScheduler; 0 if it is open. */
  public int minutesUntilOpen(int minuteOfDay) {
    return contains(minuteOfDay) ? 0 : minutesBetween(minuteOfDay, from);
  }

  /** Minutes until the window opens next, even if it is open now: 1 to 1440. */
  public int minutesUntilNextOpening(int minuteOfDay) {
    int minutes = minutesBetween(minuteOfDay, from);
    return minutes == 0 ? DAY : minutes;
  }

  /** The time at which it opens, such as "22:00". */
  String beginning() {
    return String.format(Locale.ROOT, "%d:%02d", from / 60, from % 60);
  }

  private static int minutesBetween(int earlier, int later) {
    return Math.floorMod(later - earlier, DAY);
  }
}
