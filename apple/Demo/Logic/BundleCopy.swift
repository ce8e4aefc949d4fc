import Foundation

/// Copies a training bundle, file by file, beside the app's own.
enum BundleCopy {
  /// The file that a bundle must have. Opening the bundle checks the rest.
  static let description = "bundle.json"

  /// Copies the files of a folder to one beside `target`, which ``SafeFiles/replace(_:)`` then puts in its place. Calls
  /// `progress` with the share of bytes that are copied.
  static func copy(_ folder: URL, beside target: URL, progress: @Sendable (Double) -> Void) throws -> URL {
    let files = try FileManager.default.contentsOfDirectory(
      at: folder, includingPropertiesForKeys: [.fileSizeKey, .isRegularFileKey], options: .skipsHiddenFiles)
    guard files.contains(where: { $0.lastPathComponent == description }) else {
      throw AppError("This folder is not a bundle: it has no \(description).")
    }
    let made = try SafeFiles.beside(target)
    let sizes = try files.map { try $0.resourceValues(forKeys: [.fileSizeKey]).fileSize ?? 0 }
    let total = max(1, sizes.reduce(0, +))
    var copied = 0
    for (file, size) in zip(files, sizes) {
      try FileManager.default.copyItem(at: file, to: made.appendingPathComponent(file.lastPathComponent))
      copied += size
      progress(Double(copied) / Double(total))
    }
    return made
  }

  /// Whether two folders have the same bundle: its description has the checksums of its files.
  static func isSame(_ a: URL, _ b: URL) -> Bool {
    let both = [a, b].map { try? Data(contentsOf: $0.appendingPathComponent(description)) }
    return both[0] != nil && both[0] == both[1]
  }
}
