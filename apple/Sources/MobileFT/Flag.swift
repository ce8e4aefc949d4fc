import Foundation

/// A wish of one thread that another one sees.
final class Flag: @unchecked Sendable {  // its variable is used under the lock
  private let lock = NSLock()
  private var value = false

  var isSet: Bool { lock.withLock { value } }
  func set() { lock.withLock { value = true } }
}
