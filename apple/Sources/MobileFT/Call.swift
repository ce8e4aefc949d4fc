import Foundation

/// A call of the C library in progress, whose results are awaited one by one. If nobody awaits them any more, it is
/// cancelled.
final class Call<Element: Sendable>: Sendable {
  private let channel = Channel<Element>()
  private let progress: Progress

  /// Starts `body` on a thread, with what takes its results. After ``cancel()``, that returns false. `interrupt` ends the
  /// call also where it has no result for a while; it is called only between the first result and the end, since another
  /// call may have the library's object before and after.
  init(
    interrupt: @escaping @Sendable () -> Void = {},
    _ body: @escaping @Sendable (@escaping (Element) -> Bool) throws -> Void
  ) {
    let progress = Progress(interrupt), channel = self.channel
    self.progress = progress
    onThread {
      let result = Result {
        try body { element in
          channel.send(element)
          return progress.goesOn()
        }
      }
      progress.end()
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

/// How far a call is, and whether it should end.
private final class Progress: @unchecked Sendable {  // all its variables are used under the lock
  private let lock = NSLock()
  private let interrupt: @Sendable () -> Void
  private var hasResults = false
  private var isCancelled = false
  private var isOver = false

  init(_ interrupt: @escaping @Sendable () -> Void) { self.interrupt = interrupt }

  func goesOn() -> Bool {
    lock.withLock {
      hasResults = true
      return !isCancelled
    }
  }

  func cancel() {
    lock.withLock {
      if hasResults && !isOver && !isCancelled { interrupt() }
      isCancelled = true
    }
  }

  func end() { lock.withLock { isOver = true } }
}
