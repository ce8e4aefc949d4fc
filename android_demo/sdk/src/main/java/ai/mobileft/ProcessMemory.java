package ai.mobileft;

/** The memory of this process, Java's included. */
public final class ProcessMemory {
  private final long[] values;

  private ProcessMemory(long[] values) {
    this.values = values;
  }

  /** As it is now; zeros where the system does not tell. */
  public static ProcessMemory now() {
    return new ProcessMemory(Native.processMemory());
  }

  /** Resident bytes, mapped files included. */
  public long getRss() {
    return values[0];
  }

  /** Resident anonymous bytes: what only this process holds. */
  public long getAnon() {
    return values[1];
  }

  /** Highest resident bytes since the process started, or a training began. */
  public long getPeakRss() {
    return values[2];
  }
}
