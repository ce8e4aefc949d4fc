import CMobileFT

/// One message of a chat.
public struct Message: Sendable, Equatable, Codable {
  public var role: Role
  public var content: String

  public enum Role: String, Sendable, Codable {
    case system, user, assistant
  }

  public init(_ role: Role, _ content: String) {
    self.role = role
    self.content = content
  }

  public static func system(_ content: String) -> Message { Message(.system, content) }
  public static func user(_ content: String) -> Message { Message(.user, content) }
  public static func assistant(_ content: String) -> Message { Message(.assistant, content) }
}

/// Calls `body` with messages as the C library takes them.
func withCMessages<T>(
  _ messages: [Message], _ body: (UnsafePointer<mft_message>?, Int) throws -> T
) throws -> T {
  try withCStrings("message", messages.flatMap { [$0.role.rawValue, $0.content] }) { texts in
    let converted = messages.indices.map { mft_message(role: texts[2 * $0], content: texts[2 * $0 + 1]) }
    return try converted.withUnsafeBufferPointer { try body($0.baseAddress, $0.count) }
  }
}
