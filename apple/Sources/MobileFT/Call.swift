import Foundation

/// A call of the C library in progress, whose results are awaited one by one. If nobody awaits them any more, it is
/// cancelled.
final class Call<Element: Sendable>: Sendable {
  private let channel = Channel<Element>()
  private let progress: Progress

  /// Starts `body` on a thread, with what takes its results. After ``cancel()``, that returns false. `interrupt` ends the
  /// call also where it has no result for a while; it is called only between the first result and the end, since another
  /// call may have the library's object before and after. With a turn, it is called from the beginning on.
  init(
    interrupt: @escaping @Sendable () -> Void = {}, turn: Turn? = nil,
    _ body: @escaping @Sendable (@escaping (Element) -> Bool) throws -> Void
  ) {
    let progress = Progress(interrupt), channel = self.channel
    self.progress = progress
    onThread {
      let wanted = turn?.take(progress) ?? true
      let result = Result {
        guard wanted else { return }
        try body { element in
          channel.send(element)
          return progress.goesOn()
        }
      }
      progress.end()
      turn?.leave(progress)
      channel.finish(result)
    }
  }

  deinit { cancel() }

  func cancel() { progress.cancel() }

  /// If the task is cancelled, so is the call. Its last results and its error still arrive.
  func next() async throws -> Element? {
    try await withTaskCancellationHandler {
      try await channel.next()
    } onCancel: {
      cancel()
    }
  }
}

/// Which call has an object of the library. The next one waits for one that was cancelled, which ends soon.
final class Turn: @unchecked Sendable {  // its variable is used under the lock
  private let condition = NSCondition()
  private var current: Progress?

  /// Returns whether the call should still be made. If one that was not cancelled is in progress, the library refuses it.
  fileprivate func take(_ progress: Progress) -> Bool {
    condition.withLock {
      while let current, current.isCancelled { condition.wait() }
      guard current == nil else { return true }
      current = progress
      return progress.goesOn()
    }
  }

  fileprivate func leave(_ progress: Progress) {
    condition.withLock {
      guard current === progress else { return }
      current = nil
      condition.broadcast()
    }
  }
}

/// How far a call is, and whether it should end.
private final class Progress: @unchecked Sendable {  // all its variables are used under the lock
  private let lock = NSLock()
  private let interrupt: @Sendable () -> Void
  private var hasObject = false
  private var cancelled = false
  private var isOver = false

  init(_ interrupt: @escaping @Sendable () -> Void) { self.interrupt = interrupt }

  var isCancelled: Bool { lock.withLock { cancelled } }

  /// For the call that has the library's object: whether it should go on.
  func goesOn() -> Bool {
    lock.withLock {
      hasObject = true
      return !cancelled
    }
  }

  func cancel() {
    lock.withLock {
      if hasObject && !isOver && !cancelled { interrupt() }
      cancelled = true
    }
  }

  func end() { lock.withLock { isOver = true } }
}
