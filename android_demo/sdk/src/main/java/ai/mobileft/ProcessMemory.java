package ai.mobileft;

/** The memory of this process, including Java's. */
public final class ProcessMemory {
  private final long[] values;

  private ProcessMemory(long[] values) {
    this.values = values;
  }

  /** The current memory; zeros if the system does not provide the figures. */
  public static ProcessMemory now() {
    return new ProcessMemory(Native.processMemory());
  }

  /** Resident bytes, including mapped files. */
  public long getRss() {
    return values[0];
  }

  /** Resident anonymous bytes, which belong to this process alone. */
  public long getAnon() {
    return values[1];
  }

  /** Highest resident bytes since the process or a training started. */
  public long getPeakRss() {
    return values[2];
  }
}
