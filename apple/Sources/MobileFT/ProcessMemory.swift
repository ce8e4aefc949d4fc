import CMobileFT

/// The memory of this process in bytes; zeros where the system does not say.
public struct ProcessMemory: Sendable, Equatable {
  /// Apple's systems: the footprint, which their limits count. Linux: resident memory, mapped files included.
  public let current: Int
  /// The highest value since the process started. On Linux since the latest training started.
  public let peak: Int

  public static func now() -> ProcessMemory {
    let found = mft_process_memory()
    return ProcessMemory(current: Int(found.rss), peak: Int(found.peak_rss))
  }
}
