import Foundation
import MobileFT

/// What became of the lines of a file. Valid ones are added, others left out.
public struct ExampleImport: Sendable, Equatable {
  public private(set) var added = 0, leftOut = 0
  /// Why the first line was left out, such as "line 3: the answer is empty".
  public private(set) var firstError: String?

  /// Adds lines: question, tab, answer; or rows in JSON as `mobile-ft train` reads them. Blank lines are ignored.
  static func read(_ file: URL, into dataset: Dataset) async throws -> ExampleImport {
    var result = ExampleImport()
    let text = String(decoding: try Data(contentsOf: file), as: UTF8.self)
    for (index, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
      let line = line.trimmingCharacters(in: .newlines)
      if line.trimmingCharacters(in: .whitespaces).isEmpty { continue }
      do {
        try await add(line, to: dataset)
        result.added += 1
      } catch {
        result.leftOut += 1
        if result.firstError == nil { result.firstError = "line \(index + 1): \(error.localizedDescription)" }
      }
    }
    return result
  }

  /// For the user.
  public var summary: String {
    firstError.map { "\(added) added, \(leftOut) skipped: \($0)" } ?? "\(added) added"
  }

  private static func add(_ line: String, to dataset: Dataset) async throws {
    if line.hasPrefix("{") { return try await dataset.add(json: line) }
    guard let tab = line.firstIndex(of: "\t") else {
      throw AppError("must have a question, a tab and an answer, or be a JSON row")
    }
    let form = ExampleForm(question: String(line[..<tab]), answer: String(line[line.index(after: tab)...]))
    try await form.add(to: dataset)
  }
}
