package ai.mobileft.app;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import org.junit.Test;

public class DailyWindowTest {
  private static final int DAY = 1440;

  /** Against counting the minutes one by one. */
  @Test
  public void opensWhenItSays() {
    int[] minutes = {0, 1, 359, 360, 720, 1320, 1439};
    for (int from : minutes) {
      for (int to : minutes) {
        boolean[] open = new boolean[DAY];
        int length = from == to ? DAY : (to - from + DAY) % DAY;
        for (int i = 0; i < length; ++i) open[(from + i) % DAY] = true;
        DailyWindow window = new DailyWindow(from, to);
        for (int now = 0; now < DAY; ++now) {
          String when = from + " to " + to + " at " + now;
          assertEquals(when, open[now], window.contains(now));
          int wait = 0;
          while (!open[(now + wait) % DAY]) ++wait;
          assertEquals(when, wait, window.minutesUntilOpen(now));
          int next = window.minutesUntilNextOpening(now);
          assertTrue(when, next >= 1 && next <= DAY);
          assertEquals(when, from, (now + next) % DAY);
        }
      }
    }
    assertTrue(DailyWindow.ALL_DAY.contains(0) && DailyWindow.ALL_DAY.contains(DAY - 1));
  }

  @Test
  public void saysWhenItBegins() {
    assertEquals("22:00", new DailyWindow(1320, 360).beginning());
    assertEquals("6:05", new DailyWindow(365, 360).beginning());
    assertEquals("0:00", new DailyWindow(0, 360).beginning());
  }

  @Test
  public void refusesWhatIsNoMinuteOfTheDay() {
    for (int wrong : new int[] {-1, DAY}) {
      assertThrows(IllegalArgumentException.class, () -> new DailyWindow(wrong, 0));
      assertThrows(IllegalArgumentException.class, () -> new DailyWindow(0, wrong));
    }
  }
}
