package ai.mobileft;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/** The planned peak memory of training. */
public final class MemoryPlan {
  private final String json;
  private final Map<?, ?> values;

  MemoryPlan(String json) {
    this.json = json;
    this.values = Json.object(json);
  }

  /** All memory in bytes, including weights that are mapped from files. */
  public long getTotalBytes() {
    return Json.bytesOfMb(values.get("planned_mb"));
  }

  /** Anonymous memory in bytes, which the system cannot drop. */
  public long getAnonymousBytes() {
    return Json.bytesOfMb(values.get("planned_anon_mb"));
  }

  /** The option "budget" in bytes, or -1 without one. Training rejects a plan that exceeds it. */
  public long getBudgetBytes() {
    return Json.bytesOfMb(values.get("budget_mb"));
  }

  /** The components of the total in bytes, by name. */
  public Map<String, Long> getComponentBytes() {
    Map<String, Long> bytes = new LinkedHashMap<>();
    for (Map.Entry<?, ?> component : ((Map<?, ?>) values.get("components_mb")).entrySet()) {
      bytes.put((String) component.getKey(), Json.bytesOfMb(component.getValue()));
    }
    return Collections.unmodifiableMap(bytes);
  }

  /** The estimated time of a step on this device in seconds, from a short measurement. */
  public double getStepSeconds() {
    return Json.number(values.get("step_seconds"));
  }

  /** The whole plan as JSON: a "plan" event of docs/reference/events.md. */
  public String getJson() {
    return json;
  }
}
