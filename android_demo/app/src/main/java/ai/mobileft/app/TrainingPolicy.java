package ai.mobileft.app;

/**
 * The conditions for training. Immutable. By default, training requires a charger, at least 20 percent of battery, the
 * screen off, and at most light throttling, at any time of the day.
 */
public final class TrainingPolicy {
  /**
   * Constants of ComponentCallbacks2: the first level of low memory, and the level that only reports a hidden window.
   */
  private static final int TRIM_MEMORY_RUNNING_LOW = 10;
  private static final int TRIM_MEMORY_UI_HIDDEN = 20;

  /** Additional charge required to end a pause, so that training does not start and stop repeatedly. */
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

  /** The minimum charge of the battery in percent, with and without a charger. */
  public TrainingPolicy withLeastPercent(int charging, int onBattery) {
    TrainingPolicy copy = new TrainingPolicy(this);
    copy.leastPercentCharging = charging;
    copy.leastPercentOnBattery = onBattery;
    return copy;
  }

  /** The highest thermal status of PowerManager, 0 to 6, at which to train. */
  public TrainingPolicy withHighestThermalStatus(int status) {
    TrainingPolicy copy = new TrainingPolicy(this);
    copy.highestThermalStatus = status;
    return copy;
  }

  /** Whether to pause if the system runs low on memory. */
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
   * Returns the reason not to train now, as a short sentence for a notification, or null if training is allowed.
   *
   * @param paused whether training is paused now. Resuming requires 5 percent more battery (at most 100) and a thermal
   *     status that is lower by one (at least none).
   */
  public String reasonToPause(DeviceState device, boolean paused) {
    if (onlyWhileCharging && !device.charging) return "Waiting for a charger.";
    int least = device.charging ? leastPercentCharging : leastPercentOnBattery;
    if (paused) least = Math.min(100, least + BATTERY_MARGIN_PERCENT);
    if (device.batteryPercent < least) return "Waiting for the battery to reach " + least + " percent.";
    int highest = paused ? Math.max(0, highestThermalStatus - 1) : highestThermalStatus;
    if (device.thermalStatus > highest) return "Waiting for the device to cool down.";
    if (heedMemoryPressure && isMemoryPressure(device.trimMemoryLevel)) {
      return "Waiting for memory, because other apps need it.";
    }
    if (onlyWhileScreenOff && device.screenOn) return "Waiting for the screen to turn off.";
    if (!window.contains(device.minuteOfDay)) return "Waiting until " + window.beginning() + ".";
    return null;
  }

  private static boolean isMemoryPressure(int trimMemoryLevel) {
    return trimMemoryLevel >= TRIM_MEMORY_RUNNING_LOW && trimMemoryLevel != TRIM_MEMORY_UI_HIDDEN;
  }
}
