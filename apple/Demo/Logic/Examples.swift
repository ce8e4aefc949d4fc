import Foundation
import MobileFT
import Observation

/// The examples to learn. They can be added while a training runs.
@MainActor @Observable public final class Examples {
  /// The number of examples.
  public private(set) var count = 0

  private let files: AppFiles
  private let board: Board

  init(_ files: AppFiles, _ board: Board) {
    self.files = files
    self.board = board
  }

  /// Adds a typed example. Returns whether it is on disk.
  @discardableResult
  public func add(_ form: ExampleForm) async -> Bool {
    await change { dataset in
      try await form.add(to: dataset)
      return ""
    }
  }

  /// Adds the lines of a UTF-8 file.
  @discardableResult
  public func read(_ file: URL) async -> Bool {
    await change { try await ExampleImport.read(file, into: $0).summary }
  }

  /// Counts the examples again.
  func look() async {
    if files.bundle != nil { await change { [board] _ in await board.message } }
  }

  /// Changes the data. Returns whether that succeeded. `change` returns the message for the user.
  @discardableResult
  private func change(_ change: @Sendable (Dataset) async throws -> String) async -> Bool {
    guard let bundle = files.bundle else {
      board.say("Choose a model first.")
      return false
    }
    do {
      let dataset = try await Dataset(rows: files.rows, bundle: bundle)
      defer { count = dataset.count }  // also after an import that failed
      board.say(try await change(dataset))
      return true
    } catch {
      board.say(error)
      return false
    }
  }
}
