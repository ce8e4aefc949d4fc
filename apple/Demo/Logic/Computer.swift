/// Lets one computation run at a time, so that the app stays within its memory. A short task, such as a chat, comes before
/// the training, which is asked to step aside.
public actor Computer {
  private var isBusy = false
  private var tasks: [CheckedContinuation<Void, Never>] = []
  private var trainings: [CheckedContinuation<Void, Never>] = []
  private var askAside: (@Sendable () -> Void)?  // of the slice in progress

  public init() {}

  /// Runs a short task when nothing else computes.
  func task<T: Sendable>(_ body: @Sendable () async throws -> T) async rethrows -> T {
    if isBusy {
      askAside?()
      await withCheckedContinuation { tasks.append($0) }
    }
    isBusy = true
    defer { handOn() }
    return try await body()
  }

  /// Runs a slice of a training when no task is left. Calls `whenWanted` if a task waits for its end.
  func slice<T: Sendable>(
    whenWanted: @escaping @Sendable () -> Void, _ body: @Sendable () async throws -> T
  ) async rethrows -> T {
    if isBusy { await withCheckedContinuation { trainings.append($0) } }
    isBusy = true
    askAside = whenWanted
    defer {
      askAside = nil
      handOn()
    }
    return try await body()
  }

  /// Whoever goes on finds the computer busy, so that nobody comes in between.
  private func handOn() {
    if !tasks.isEmpty {
      tasks.removeFirst().resume()
    } else if !trainings.isEmpty {
      trainings.removeFirst().resume()
    } else {
      isBusy = false
    }
  }
}
