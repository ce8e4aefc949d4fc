import CMobileFT
import Foundation

/// An object of the C library, closed with the last reference to it.
///
/// Sendable, because the library takes calls from any thread; of two calls at a time it rejects the second one.
final class Handle: @unchecked Sendable {
  let pointer: OpaquePointer
  private let close: @Sendable (OpaquePointer?) -> Void

  init(
    open: (UnsafeMutablePointer<OpaquePointer?>) -> mft_status, close: @escaping @Sendable (OpaquePointer?) -> Void
  ) throws {
    var opened: OpaquePointer?
    try check(open(&opened))
    guard let opened else { throw MobileFTError.failed("the library opened nothing") }
    self.pointer = opened
    self.close = close
  }

  deinit { close(pointer) }
}

/// Runs `body` on a thread that may block, since the threads of Swift's tasks must not.
func blocking<T: Sendable>(_ body: @escaping @Sendable () throws -> T) async throws -> T {
  try await withCheckedThrowingContinuation { continuation in
    onThread { continuation.resume(with: Result(catching: body)) }
  }
}

/// Starts `body` on a thread that may block, with the priority of this task.
func onThread(_ body: @escaping @Sendable () -> Void) {
  let quality: DispatchQoS.QoSClass =
    switch Task.currentPriority {
    case .background: .background
    case .low: .utility
    case .high: .userInitiated
    default: .default
    }
  DispatchQueue.global(qos: quality).async(execute: body)
}

extension URL {
  /// The path of a file, as the C library takes it.
  var filePath: String { path(percentEncoded: false) }
}

/// Returns a text for the C library, which would cut it at a NUL character: one that has any is an error. `name` is the
/// name in it.
func withoutNul(_ name: String, _ text: String) throws -> String {
  guard text.utf8.contains(0) else { return text }
  throw MobileFTError.argument("\(name): has a NUL character, which the runtime does not support")
}

/// Calls `body` with C strings, of which those of `nil` are NULL.
func withCStrings<T>(
  _ name: String, _ texts: [String?], _ body: ([UnsafePointer<CChar>?]) throws -> T
) throws -> T {
  for case let text? in texts { _ = try withoutNul(name, text) }
  let copies = texts.map { $0.map { strdup($0) } ?? nil }
  defer { copies.forEach { free($0) } }
  return try body(copies.map { UnsafePointer($0) })
}
