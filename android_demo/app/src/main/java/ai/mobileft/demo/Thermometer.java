package ai.mobileft.demo;

import android.annotation.TargetApi;
import android.os.PowerManager;
import java.util.function.IntConsumer;

/** Receives the thermal status in the main thread. A separate class, because it requires Android 10. */
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
