import Foundation

/// The paths of the app's files, in its own folder.
public struct AppFiles: Sendable {
  let folder: URL

  public init(folder: URL) { self.folder = folder }

  /// The folder of the model's training bundle; nil if the user has not chosen one.
  public var bundle: URL? { exists(copiedBundle) ? copiedBundle : nil }

  var copiedBundle: URL { folder.appendingPathComponent("bundle", isDirectory: true) }
  var rows: URL { folder.appendingPathComponent("rows.jsonl") }
  /// The training that the user started last.
  var run: URL { folder.appendingPathComponent("run", isDirectory: true) }
  /// What was learned at night.
  var learner: URL { folder.appendingPathComponent("learner", isDirectory: true) }
  var nights: URL { folder.appendingPathComponent("nights.json") }
  var settings: URL { folder.appendingPathComponent("settings.json") }
}

/// Whether there is a file or folder.
func exists(_ url: URL) -> Bool { FileManager.default.fileExists(atPath: url.path(percentEncoded: false)) }

/// Whether a folder has an adapter of a training.
func hasAdapter(_ folder: URL) -> Bool { exists(folder.appendingPathComponent("adapter_model.safetensors")) }
