import Foundation

/// Brings what a thread of the C library produces to the task that awaits it.
final class Channel<Element: Sendable>: @unchecked Sendable {  // all its variables are used under the lock
  private let lock = NSLock()
  private var elements: [Element] = []
  private var end: Result<Void, any Error>?
  private var waiting: CheckedContinuation<Element?, any Error>?

  func send(_ element: Element) {
    let waiter = lock.withLock { () -> CheckedContinuation<Element?, any Error>? in
      if waiting == nil { elements.append(element) }
      defer { waiting = nil }
      return waiting
    }
    waiter?.resume(returning: element)
  }

  /// No element follows. What was sent before is still received.
  func finish(_ result: Result<Void, any Error>) {
    let waiter = lock.withLock { () -> CheckedContinuation<Element?, any Error>? in
      end = result
      defer { waiting = nil }
      return waiting
    }
    waiter?.resume(with: result.map { nil })
  }

  /// The next element, or nil after the last one. For one task at a time.
  func next() async throws -> Element? {
    try await withCheckedThrowingContinuation { continuation in
      let ready = lock.withLock { () -> Result<Element?, any Error>? in
        if !elements.isEmpty { return .success(elements.removeFirst()) }
        if let end {
          self.end = .success(())  // an error is thrown once
          return end.map { nil }
        }
        waiting = continuation
        return nil
      }
      if let ready { continuation.resume(with: ready) }
    }
  }
}
