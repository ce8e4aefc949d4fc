package ai.mobileft.demo;

import ai.mobileft.app.DeviceState;
import android.app.ActivityManager;
import android.content.BroadcastReceiver;
import android.content.ComponentCallbacks2;
import android.content.Context;
import android.content.Intent;
import android.content.IntentFilter;
import android.content.res.Configuration;
import android.os.BatteryManager;
import android.os.Build;
import android.os.Handler;
import android.os.Looper;
import android.os.PowerManager;
import java.util.Calendar;
import java.util.function.Consumer;

/** Reports the device's state and every change, from {@link #start} to {@link #stop}, in the main thread. */
final class DeviceWatcher extends BroadcastReceiver implements ComponentCallbacks2 {
  private static final long POLL_MILLISECONDS = 10_000;

  private final Context context;
  private final ActivityManager activities;
  private final PowerManager power;
  private final Consumer<DeviceState> listener;
  private final Handler handler = new Handler(Looper.getMainLooper());
  private final Runnable poll = this::poll;
  private Thermometer thermometer; // null before Android 10, or when stopped
  private DeviceState device = DeviceState.UNKNOWN;

  DeviceWatcher(Context context, Consumer<DeviceState> listener) {
    this.context = context.getApplicationContext();
    this.listener = listener;
    activities = context.getSystemService(ActivityManager.class);
    power = context.getSystemService(PowerManager.class);
  }

  /** The listener has received the complete state when this returns. */
  void start() {
    IntentFilter filter = new IntentFilter(Intent.ACTION_SCREEN_ON);
    filter.addAction(Intent.ACTION_SCREEN_OFF);
    filter.addAction(Intent.ACTION_TIME_TICK);
    filter.addAction(Intent.ACTION_TIME_CHANGED);
    filter.addAction(Intent.ACTION_TIMEZONE_CHANGED);
    context.registerReceiver(this, filter); // system broadcasts only, so RECEIVER_NOT_EXPORTED is not needed
    Intent battery = context.registerReceiver(this, new IntentFilter(Intent.ACTION_BATTERY_CHANGED));
    context.registerComponentCallbacks(this);
    if (battery != null) device = withBattery(battery);
    device = device.withScreenOn(power.isInteractive()).withMinuteOfDay(minuteOfDay());
    if (Build.VERSION.SDK_INT >= 29) {
      thermometer = new Thermometer(power, this::setThermalStatus);
      device = device.withThermalStatus(power.getCurrentThermalStatus());
    }
    poll();
  }

  void stop() {
    context.unregisterReceiver(this);
    context.unregisterComponentCallbacks(this);
    handler.removeCallbacks(poll);
    if (thermometer != null) thermometer.stop();
    thermometer = null;
  }

  @Override
  public void onReceive(Context context, Intent intent) {
    switch (intent.getAction()) {
      case Intent.ACTION_BATTERY_CHANGED:
        set(withBattery(intent));
        break;
      case Intent.ACTION_SCREEN_ON:
        set(device.withScreenOn(true));
        break;
      case Intent.ACTION_SCREEN_OFF:
        set(device.withScreenOn(false));
        break;
      default:
        set(device.withMinuteOfDay(minuteOfDay()));
    }
  }

  @Override
  public void onTrimMemory(int level) {
    set(device.withTrimMemoryLevel(level));
  }

  @Override
  @SuppressWarnings("deprecation") // abstract, so it must be implemented
  public void onLowMemory() {
    set(device.withTrimMemoryLevel(TRIM_MEMORY_COMPLETE));
  }

  @Override
  public void onConfigurationChanged(Configuration configuration) {}

  /** Android does not report that memory is free again, and since 14 does not report low memory to foreground apps. */
  private void poll() {
    ActivityManager.MemoryInfo memory = new ActivityManager.MemoryInfo();
    activities.getMemoryInfo(memory);
    set(device.withTrimMemoryLevel(memory.lowMemory ? TRIM_MEMORY_COMPLETE : 0));
    handler.postDelayed(poll, POLL_MILLISECONDS);
  }

  private void setThermalStatus(int status) {
    set(device.withThermalStatus(status));
  }

  private void set(DeviceState now) {
    device = now;
    listener.accept(now);
  }

  private DeviceState withBattery(Intent battery) {
    int level = battery.getIntExtra(BatteryManager.EXTRA_LEVEL, 0);
    int scale = Math.max(1, battery.getIntExtra(BatteryManager.EXTRA_SCALE, 100));
    boolean charging = battery.getIntExtra(BatteryManager.EXTRA_PLUGGED, 0) != 0;
    return device.withCharging(charging).withBatteryPercent(level * 100 / scale);
  }

  /** The current minute of local time. */
  static int minuteOfDay() {
    Calendar now = Calendar.getInstance();
    return now.get(Calendar.HOUR_OF_DAY) * 60 + now.get(Calendar.MINUTE);
  }
}
