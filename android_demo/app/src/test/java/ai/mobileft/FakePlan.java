package ai.mobileft;

/** A plan as a test wants it; only this package can make one. */
public final class FakePlan {
  private FakePlan() {}

  public static MemoryPlan of(long totalBytes, double stepSeconds) {
    return new MemoryPlan(
        "{\"event\": \"plan\", \"planned_mb\": " + totalBytes / 1e6 + ", \"step_seconds\": " + stepSeconds + "}");
  }
}
