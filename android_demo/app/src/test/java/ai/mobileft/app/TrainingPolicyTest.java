package ai.mobileft.app;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNotNull;
import static org.junit.Assert.assertNull;

import org.junit.Test;

public class TrainingPolicyTest {
  private static final TrainingPolicy POLICY = new TrainingPolicy();
  private static final TrainingPolicy ON_BATTERY = POLICY.withOnlyWhileCharging(false);

  /** Nothing speaks against training. */
  private static final DeviceState QUIET =
      DeviceState.UNKNOWN.withCharging(true).withBatteryPercent(80).withScreenOn(false);

  private static final DeviceState UNPLUGGED = QUIET.withCharging(false);

  private static final String CHARGER = "Waiting for a charger.";
  private static final String HEAT = "Waiting for the device to cool down.";
  private static final String MEMORY = "Waiting for memory, because other apps need it.";
  private static final String SCREEN = "Waiting for the screen to turn off.";

  private static String battery(int percent) {
    return "Waiting for the battery to reach " + percent + " percent.";
  }

  /** A policy, a device, and the reasons while training and while paused. */
  private static Object[] row(TrainingPolicy policy, DeviceState device, String training, String paused) {
    return new Object[] {policy, device, training, paused};
  }

  @Test
  public void reasons() {
    Object[][] table = {
      row(POLICY, QUIET, null, null),
      row(POLICY, DeviceState.UNKNOWN, CHARGER, CHARGER),
      row(POLICY, UNPLUGGED, CHARGER, CHARGER),
      row(POLICY, UNPLUGGED.withBatteryPercent(100), CHARGER, CHARGER),
      row(ON_BATTERY, UNPLUGGED, null, null),
      // With the charger 20 percent are enough, and without 50; 5 more to resume.
      row(POLICY, QUIET.withBatteryPercent(25), null, null),
      row(POLICY, QUIET.withBatteryPercent(24), null, battery(25)),
      row(POLICY, QUIET.withBatteryPercent(20), null, battery(25)),
      row(POLICY, QUIET.withBatteryPercent(19), battery(20), battery(25)),
      row(ON_BATTERY, UNPLUGGED.withBatteryPercent(55), null, null),
      row(ON_BATTERY, UNPLUGGED.withBatteryPercent(54), null, battery(55)),
      row(ON_BATTERY, UNPLUGGED.withBatteryPercent(49), battery(50), battery(55)),
      row(ON_BATTERY, QUIET.withBatteryPercent(49), null, null),
      row(POLICY.withLeastPercent(0, 99), QUIET.withBatteryPercent(5), null, null),
      // What nobody can exceed is no condition to wait for.
      row(POLICY.withLeastPercent(98, 0), QUIET.withBatteryPercent(99), null, battery(100)),
      row(POLICY.withLeastPercent(98, 0), QUIET.withBatteryPercent(100), null, null),
      // Status 1 is allowed; to resume it takes one less, where there is one.
      row(POLICY, QUIET.withThermalStatus(1), null, HEAT),
      row(POLICY, QUIET.withThermalStatus(2), HEAT, HEAT),
      row(POLICY, QUIET.withThermalStatus(6), HEAT, HEAT),
      row(POLICY.withHighestThermalStatus(3), QUIET.withThermalStatus(2), null, null),
      row(POLICY.withHighestThermalStatus(3), QUIET.withThermalStatus(3), null, HEAT),
      row(POLICY.withHighestThermalStatus(3), QUIET.withThermalStatus(4), HEAT, HEAT),
      row(POLICY.withHighestThermalStatus(0), QUIET, null, null),
      row(POLICY.withHighestThermalStatus(0), QUIET.withThermalStatus(1), HEAT, HEAT),
      // RUNNING_MODERATE, RUNNING_LOW, RUNNING_CRITICAL, UI_HIDDEN, BACKGROUND, MODERATE, COMPLETE
      row(POLICY, QUIET.withTrimMemoryLevel(5), null, null),
      row(POLICY, QUIET.withTrimMemoryLevel(10), MEMORY, MEMORY),
      row(POLICY, QUIET.withTrimMemoryLevel(15), MEMORY, MEMORY),
      row(POLICY, QUIET.withTrimMemoryLevel(20), null, null),
      row(POLICY, QUIET.withTrimMemoryLevel(40), MEMORY, MEMORY),
      row(POLICY, QUIET.withTrimMemoryLevel(60), MEMORY, MEMORY),
      row(POLICY, QUIET.withTrimMemoryLevel(80), MEMORY, MEMORY),
      row(POLICY.withHeedMemoryPressure(false), QUIET.withTrimMemoryLevel(80), null, null),
      row(POLICY, QUIET.withScreenOn(true), SCREEN, SCREEN),
      row(POLICY.withOnlyWhileScreenOff(false), QUIET.withScreenOn(true), null, null),
      row(night(), QUIET.withMinuteOfDay(21 * 60 + 29), "Waiting until 21:30.", "Waiting until 21:30."),
      row(night(), QUIET.withMinuteOfDay(21 * 60 + 30), null, null),
      row(night(), QUIET.withMinuteOfDay(0), null, null),
      row(night(), QUIET.withMinuteOfDay(359), null, null),
      row(night(), QUIET.withMinuteOfDay(360), "Waiting until 21:30.", "Waiting until 21:30."),
      // The first of several.
      row(night(), DeviceState.UNKNOWN.withCharging(true).withThermalStatus(6), battery(20), battery(25)),
      row(night(), QUIET.withThermalStatus(6).withTrimMemoryLevel(80), HEAT, HEAT),
      row(night(), QUIET.withScreenOn(true).withTrimMemoryLevel(80), MEMORY, MEMORY),
      row(night(), QUIET.withScreenOn(true).withMinuteOfDay(720), SCREEN, SCREEN),
    };
    for (int i = 0; i < table.length; ++i) {
      TrainingPolicy policy = (TrainingPolicy) table[i][0];
      DeviceState device = (DeviceState) table[i][1];
      assertEquals("row " + i, table[i][2], policy.reasonToPause(device, false));
      assertEquals("row " + i, table[i][3], policy.reasonToPause(device, true));
    }
  }

  private static TrainingPolicy night() {
    return POLICY.withWindow(new DailyWindow(21 * 60 + 30, 6 * 60));
  }

  /** One setting, or one thing that Android tells, changes nothing else. */
  @Test
  public void othersStayWhatTheyAre() {
    TrainingPolicy all =
        new TrainingPolicy()
            .withWindow(new DailyWindow(60, 120))
            .withOnlyWhileScreenOff(false)
            .withHeedMemoryPressure(false)
            .withHighestThermalStatus(4)
            .withLeastPercent(30, 40)
            .withOnlyWhileCharging(false);
    DeviceState device =
        DeviceState.UNKNOWN
            .withMinuteOfDay(60)
            .withScreenOn(true)
            .withTrimMemoryLevel(80)
            .withThermalStatus(4)
            .withBatteryPercent(40)
            .withCharging(false);
    assertNull(all.reasonToPause(device, false));
    assertEquals("Waiting until 1:00.", all.reasonToPause(device.withMinuteOfDay(59), false));
    DeviceState charging = device.withCharging(true).withBatteryPercent(30);
    assertNull(all.reasonToPause(charging, false));
    assertEquals(battery(30), all.reasonToPause(charging.withBatteryPercent(29), false));
    assertEquals(CHARGER, all.withOnlyWhileCharging(true).reasonToPause(device, false));
    assertEquals(battery(41), all.withLeastPercent(30, 41).reasonToPause(device, false));
    assertEquals(HEAT, all.withHighestThermalStatus(3).reasonToPause(device, false));
    assertEquals(MEMORY, all.withHeedMemoryPressure(true).reasonToPause(device, false));
    assertEquals(SCREEN, all.withOnlyWhileScreenOff(true).reasonToPause(device, false));
    assertNotNull(all.withWindow(new DailyWindow(61, 120)).reasonToPause(device, false));
  }
}
