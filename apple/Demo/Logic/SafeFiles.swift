import Foundation

/// Replaces folders and files as a whole: a new one is written beside its target and then renamed.
enum SafeFiles {
  /// Makes an empty folder beside a target, to be filled for ``replace(_:)``.
  static func beside(_ target: URL) throws -> URL {
    let made = with("new", target)
    try delete(made)
    try FileManager.default.createDirectory(at: made, withIntermediateDirectories: true)
    return made
  }

  /// Replaces a target by the finished folder beside it.
  static func replace(_ target: URL) throws {
    let old = with("old", target)
    try delete(old)
    if exists(target) { try FileManager.default.moveItem(at: target, to: old) }
    try FileManager.default.moveItem(at: with("new", target), to: target)
    try delete(old)
  }

  /// Call it before anything else: the process may have died in ``replace(_:)``, or before it.
  static func recover(_ target: URL) throws {
    let old = with("old", target)
    if !exists(target), exists(old) { try FileManager.default.moveItem(at: old, to: target) }
    try delete(old)
    try delete(with("new", target))
  }

  static func write(_ value: some Encodable, to file: URL) throws {
    try JSONEncoder().encode(value).write(to: file, options: .atomic)
  }

  /// Returns nil if there is no such file. Throws if it cannot be read.
  static func read<T: Decodable>(_ type: T.Type, from file: URL) throws -> T? {
    exists(file) ? try JSONDecoder().decode(type, from: Data(contentsOf: file)) : nil
  }

  /// Deletes a file or folder. It need not exist.
  static func delete(_ url: URL) throws {
    if exists(url) { try FileManager.default.removeItem(at: url) }
  }

  private static func with(_ ending: String, _ target: URL) -> URL {
    target.deletingLastPathComponent().appendingPathComponent("\(target.lastPathComponent).\(ending)", isDirectory: true)
  }
}
