package ai.mobileft.app;

/**
 * When a training may run, as the user sets it. Immutable. The first one trains with the charger from 20 percent on,
 * the screen off and the device at most lightly throttled, at any time of the day.
 */
public final class TrainingPolicy {
  /** Of ComponentCallbacks2: the first that tells of little memory, and one that only tells of a hidden window. */
  private static final int TRIM_MEMORY_RUNNING_LOW = 10;
  private static final int TRIM_MEMORY_UI_HIDDEN = 20;

  /** A pause lasts until the battery has so much more than it must, lest training starts and stops all the time. */
  private static final int BATTERY_MARGIN_PERCENT = 5;

  private boolean onlyWhileCharging = true;
  private int leastPercentCharging = 20;
  private int leastPercentOnBattery = 50;
  private int highestThermalStatus = 1;
  private boolean heedMemoryPressure = true;
  private boolean onlyWhileScreenOff = true;
  private DailyWindow window = DailyWindow.ALL_DAY;

  public TrainingPolicy() {}

  private TrainingPolicy(TrainingPolicy other) {
    onlyWhileCharging = other.onlyWhileCharging;
    leastPercentCharging = other.leastPercentCharging;
    leastPercentOnBattery = other.leastPercentOnBattery;
    highestThermalStatus = other.highestThermalStatus;
    heedMemoryPressure = other.heedMemoryPressure;
    onlyWhileScreenOff = other.onlyWhileScreenOff;
    window = other.window;
  }

  public TrainingPolicy withOnlyWhileCharging(boolean only) {
    TrainingPolicy copy = new TrainingPolicy(this);
    copy.onlyWhileCharging = only;
    return copy;
  }

  /** The least charge of the battery in percent, with the charger and without. */
  public TrainingPolicy withLeastPercent(int charging, int onBattery) {
    TrainingPolicy copy = new TrainingPolicy(this);
    copy.leastPercentCharging = charging;
    copy.leastPercentOnBattery = onBattery;
    return copy;
  }

  /** The highest of PowerManager's thermal statuses, 0 to 6, at which to train. */
  public TrainingPolicy withHighestThermalStatus(int status) {
    TrainingPolicy copy = new TrainingPolicy(this);
    copy.highestThermalStatus = status;
    return copy;
  }

  /** Whether to pause where the system runs low on memory. */
  public TrainingPolicy withHeedMemoryPressure(boolean heed) {
    TrainingPolicy copy = new TrainingPolicy(this);
    copy.heedMemoryPressure = heed;
    return copy;
  }

  public TrainingPolicy withOnlyWhileScreenOff(boolean only) {
    TrainingPolicy copy = new TrainingPolicy(this);
    copy.onlyWhileScreenOff = only;
    return copy;
  }

  public TrainingPolicy withWindow(DailyWindow window) {
    TrainingPolicy copy = new TrainingPolicy(this);
    copy.window = window;
    return copy;
  }

  /**
   * Why not to train now, in a short sentence for a notification; null where nothing speaks against it.
   *
   * @param paused whether training is paused now, for whatever reason. To go on then takes 5 percent more battery, but
   *     100 are enough, and one thermal status less, but none is enough.
   */
  public String reasonToPause(DeviceState device, boolean paused) {
    if (onlyWhileCharging && !device.charging) return "Waits for the charger.";
    int least = device.charging ? leastPercentCharging : leastPercentOnBattery;
    if (paused) least = Math.min(100, least + BATTERY_MARGIN_PERCENT);
    if (device.batteryPercent < least) return "Waits for the battery to reach " + least + " percent.";
    int highest = paused ? Math.max(0, highestThermalStatus - 1) : highestThermalStatus;
    if (device.thermalStatus > highest) return "Waits for the device to cool down.";
    if (heedMemoryPressure && isMemoryPressure(device.trimMemoryLevel)) return "Waits, as other apps need memory.";
    if (onlyWhileScreenOff && device.screenOn) return "Waits for the screen to go off.";
    if (!window.contains(device.minuteOfDay)) return "Waits for " + window.beginning() + ".";
    return null;
  }

  private static boolean isMemoryPressure(int trimMemoryLevel) {
    return trimMemoryLevel >= TRIM_MEMORY_RUNNING_LOW && trimMemoryLevel != TRIM_MEMORY_UI_HIDDEN;
  }
}
