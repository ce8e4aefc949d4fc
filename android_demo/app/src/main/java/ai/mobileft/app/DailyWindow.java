package ai.mobileft.app;

import java.util.Locale;

/** The time of day at which to train, such as 22:00 to 6:00. Minutes of the day are local time, 0 to 1439. */
public final class DailyWindow {
  public static final DailyWindow ALL_DAY = new DailyWindow(0, 0);

  private static final int DAY = 24 * 60;

  private final int from;
  private final int to;

  /** Past midnight where {@code to} is before {@code from}, and all day where they are the same. */
  public DailyWindow(int from, int to) {
    if (from < 0 || from >= DAY || to < 0 || to >= DAY) {
      throw new IllegalArgumentException("from " + from + " to " + to + ": must be minutes of the day, 0 to 1439");
    }
    this.from = from;
    this.to = to;
  }

  /** Whether it is open; in the minute {@code to} it no longer is. */
  public boolean contains(int minuteOfDay) {
    if (from == to) return true;
    return minutesBetween(from, minuteOfDay) < minutesBetween(from, to);
  }

  /** For JobScheduler: how many minutes from now the window begins; 0 where it is open. */
  public int minutesUntilOpen(int minuteOfDay) {
    return contains(minuteOfDay) ? 0 : minutesBetween(minuteOfDay, from);
  }

  /** The same, but where it is open the next time that it begins: 1 to 1440. */
  public int minutesUntilNextOpening(int minuteOfDay) {
    int minutes = minutesBetween(minuteOfDay, from);
    return minutes == 0 ? DAY : minutes;
  }

  /** When it begins, such as "22:00". */
  String beginning() {
    return String.format(Locale.ROOT, "%d:%02d", from / 60, from % 60);
  }

  private static int minutesBetween(int earlier, int later) {
    return Math.floorMod(later - earlier, DAY);
  }
}
