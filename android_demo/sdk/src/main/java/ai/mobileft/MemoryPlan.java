package ai.mobileft;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/** The memory that training will take at its peak. */
public final class MemoryPlan {
  private final String json;
  private final Map<?, ?> values;

  MemoryPlan(String json) {
    this.json = json;
    this.values = Json.object(json);
  }

  /** In bytes, with the weights that are mapped from files. */
  public long getTotalBytes() {
    return Json.bytesOfMb(values.get("planned_mb"));
  }

  /** In bytes, what the system can not drop. */
  public long getAnonymousBytes() {
    return Json.bytesOfMb(values.get("planned_anon_mb"));
  }

  /** The option "budget" in bytes; -1 where there is none. Training refuses a plan that exceeds it. */
  public long getBudgetBytes() {
    return Json.bytesOfMb(values.get("budget_mb"));
  }

  /** What the total consists of, in bytes, by name. */
  public Map<String, Long> getComponentBytes() {
    Map<String, Long> bytes = new LinkedHashMap<>();
    for (Map.Entry<?, ?> component : ((Map<?, ?>) values.get("components_mb")).entrySet()) {
      bytes.put((String) component.getKey(), Json.bytesOfMb(component.getValue()));
    }
    return Collections.unmodifiableMap(bytes);
  }

  /** What a step takes on this device, in seconds, as far as a short measurement tells. */
  public double getStepSeconds() {
    return Json.number(values.get("step_seconds"));
  }

  /** All of it, as a "plan" event of docs/reference/events.md. */
  public String getJson() {
    return json;
  }
}
