package ai.mobileft;

import java.util.Map;

/** An event of a training. docs/reference/events.md lists the kinds, and the fields in {@link #getJson()}. */
public final class TrainingEvent {
  private final String json;
  private final Map<?, ?> values;

  TrainingEvent(String json) {
    this.json = json;
    this.values = Json.object(json);
  }

  /** The kind: "plan", "step", "eval", "saved", "stopped", "done" or another one. */
  public String getKind() {
    return (String) values.get("event");
  }

  /** The step of the event, from 1, or -1. */
  public long getStep() {
    return Json.integer(values.get("step"));
  }

  /** The mean loss of a step or a validation; NaN for other events. */
  public double getLoss() {
    return Json.number(values.get("loss"));
  }

  /** The time of a step or a validation; NaN for other events. */
  public double getSeconds() {
    return Json.number(values.get("seconds"));
  }

  /** The tokens of a step, or of all steps when done; -1 for other events. */
  public long getTokens() {
    return Json.integer(values.get("tokens"));
  }

  /** Resident memory in bytes after a step, including mapped files; -1 for other events. */
  public long getRssBytes() {
    return Json.bytesOfMb(values.get("rss_mb"));
  }

  /** Resident anonymous memory in bytes after a step; -1 for other events. */
  public long getAnonBytes() {
    return Json.bytesOfMb(values.get("anon_mb"));
  }

  /** Why training stopped early; null for other events. */
  public String getReason() {
    return (String) values.get("reason");
  }

  /** The whole event as JSON. */
  public String getJson() {
    return json;
  }
}
