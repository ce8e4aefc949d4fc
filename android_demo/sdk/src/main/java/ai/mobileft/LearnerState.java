package ai.mobileft;

import java.io.File;
import java.util.List;
import java.util.Map;

/** What a {@link Learner} has: its current version, and what the nights so far decided. */
public final class LearnerState {
  private final String json;
  private final Map<?, ?> values;

  LearnerState(String json) {
    this.json = json;
    this.values = Json.object(json);
  }

  /** The current version; 0 is the base model. */
  public long getVersion() {
    return Json.integer(values.get("version"));
  }

  /** The folder of the current version's adapter, for a {@link Generator}; null for the base model. */
  public File getAdapterFolder() {
    String folder = (String) values.get("adapter");
    return folder.isEmpty() ? null : new File(folder);
  }

  /** The number of rows that are kept. */
  public long getRows() {
    return Json.integer(values.get("rows"));
  }

  /** The number of kept rows that no version was trained on. */
  public long getHeldOutRows() {
    return Json.integer(values.get("held_out"));
  }

  /** The number of nights so far. */
  public int getNights() {
    return ((List<?>) values.get("nights")).size();
  }

  /** Whether the last night's result was adopted. */
  public boolean isLastNightAdopted() {
    return Boolean.TRUE.equals(lastNight().get("adopted"));
  }

  /** Why the last night's result was adopted or not. */
  public String getLastNightReason() {
    return (String) lastNight().get("why");
  }

  /** The whole state as JSON: the "done" event of learning in docs/reference/events.md. */
  public String getJson() {
    return json;
  }

  private Map<?, ?> lastNight() {
    List<?> nights = (List<?>) values.get("nights");
    if (nights.isEmpty()) throw new IllegalStateException("there was no night yet");
    return (Map<?, ?>) nights.get(nights.size() - 1);
  }
}
