package ai.mobileft.app;

/** The state of the device at one moment, from Android. Immutable. */
public final class DeviceState {
  /** The initial state, before Android has reported one: it makes a {@link TrainingPolicy} most restrictive. */
  public static final DeviceState UNKNOWN = new DeviceState(false, 0, 0, 0, true, 0);

  final boolean charging;
  final int batteryPercent;
  final int thermalStatus;
  final int trimMemoryLevel;
  final boolean screenOn;
  final int minuteOfDay;

  private DeviceState(
      boolean charging, int batteryPercent, int thermalStatus, int trimMemoryLevel, boolean screenOn, int minuteOfDay) {
    this.charging = charging;
    this.batteryPercent = batteryPercent;
    this.thermalStatus = thermalStatus;
    this.trimMemoryLevel = trimMemoryLevel;
    this.screenOn = screenOn;
    this.minuteOfDay = minuteOfDay;
  }

  public DeviceState withCharging(boolean charging) {
    return new DeviceState(charging, batteryPercent, thermalStatus, trimMemoryLevel, screenOn, minuteOfDay);
  }

  /** {@code batteryPercent} is 0 to 100. */
  public DeviceState withBatteryPercent(int batteryPercent) {
    return new DeviceState(charging, batteryPercent, thermalStatus, trimMemoryLevel, screenOn, minuteOfDay);
  }

  /**
   * {@code thermalStatus} is a constant of PowerManager, THERMAL_STATUS_NONE = 0 to SHUTDOWN = 6; 0 before Android 10.
   */
  public DeviceState withThermalStatus(int thermalStatus) {
    return new DeviceState(charging, batteryPercent, thermalStatus, trimMemoryLevel, screenOn, minuteOfDay);
  }

  /**
   * {@code trimMemoryLevel} is the argument of ComponentCallbacks2.onTrimMemory, or 0. Android never reports that
   * memory is free again, so the receiver of a level must set 0 later, when ActivityManager.MemoryInfo.lowMemory is
   * false.
   */
  public DeviceState withTrimMemoryLevel(int trimMemoryLevel) {
    return new DeviceState(charging, batteryPercent, thermalStatus, trimMemoryLevel, screenOn, minuteOfDay);
  }

  public DeviceState withScreenOn(boolean screenOn) {
    return new DeviceState(charging, batteryPercent, thermalStatus, trimMemoryLevel, screenOn, minuteOfDay);
  }

  /** {@code minuteOfDay} is local time, 0 to 1439. */
  public DeviceState withMinuteOfDay(int minuteOfDay) {
    return new DeviceState(charging, batteryPercent, thermalStatus, trimMemoryLevel, screenOn, minuteOfDay);
  }
}
