package ai.mobileft.demo;

import android.annotation.TargetApi;
import android.os.PowerManager;
import java.util.function.IntConsumer;

/** Hears of the thermal status, in the main thread. A class of its own, since Android has known that since 10 only. */
@TargetApi(29)
final class Thermometer {
  private final PowerManager power;
  private final PowerManager.OnThermalStatusChangedListener listener;

  Thermometer(PowerManager power, IntConsumer listener) {
    this.power = power;
    this.listener = listener::accept;
    power.addThermalStatusListener(this.listener);
  }

  void stop() {
    power.removeThermalStatusListener(listener);
  }
}
