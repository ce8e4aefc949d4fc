package ai.mobileft;

import java.util.Map;

/** What happened in a training; docs/reference/events.md lists the kinds, and what {@link #getJson()} has of each. */
public final class TrainingEvent {
  private final String json;
  private final Map<?, ?> values;

  TrainingEvent(String json) {
    this.json = json;
    this.values = Json.object(json);
  }

  /** "plan", "step", "eval", "saved", "stopped", "done" or another one. */
  public String getKind() {
    return (String) values.get("event");
  }

  /** The step that this is about, from 1; -1 where it is about none. */
  public long getStep() {
    return Json.integer(values.get("step"));
  }

  /** Of a step or a validation, the mean over its targets; NaN of others. */
  public double getLoss() {
    return Json.number(values.get("loss"));
  }

  /** That a step or a validation took; NaN of others. */
  public double getSeconds() {
    return Json.number(values.get("seconds"));
  }

  /** Of a step, or of all when done; -1 of others. */
  public long getTokens() {
    return Json.integer(values.get("tokens"));
  }

  /** Of a step: resident memory in bytes after it, mapped files included; -1 of others. */
  public long getRssBytes() {
    return Json.bytesOfMb(values.get("rss_mb"));
  }

  /** Of a step: resident anonymous memory in bytes after it; -1 of others. */
  public long getAnonBytes() {
    return Json.bytesOfMb(values.get("anon_mb"));
  }

  /** Why training stopped early; null of other events. */
  public String getReason() {
    return (String) values.get("reason");
  }

  /** All of it. */
  public String getJson() {
    return json;
  }
}
