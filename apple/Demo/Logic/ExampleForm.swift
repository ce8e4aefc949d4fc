import Foundation
import MobileFT

/// A question and the answer to learn, as the user typed them.
public struct ExampleForm: Sendable {
  /// Most characters of a question or an answer. The data's statistics tell rows that exceed the model's longest sequence.
  public static let mostCharacters = 4000

  let question: String, answer: String

  public init(question: String, answer: String) {
    self.question = question.trimmingCharacters(in: .whitespacesAndNewlines)
    self.answer = answer.trimmingCharacters(in: .whitespacesAndNewlines)
  }

  /// What is wrong, as a line for the user, or nil.
  public var mistake: String? {
    for (name, text) in [("question", question), ("answer", answer)] {
      if text.isEmpty { return "the \(name) is empty" }
      if text.count > Self.mostCharacters {
        return "the \(name) has \(text.count) characters; the maximum is \(Self.mostCharacters)"
      }
    }
    return nil
  }

  func add(to dataset: Dataset) async throws {
    if let mistake { throw AppError(mistake) }
    try await dataset.add(prompt: question, completion: answer)
  }
}

/// A mistake, as a line for the user.
struct AppError: LocalizedError, Equatable {
  let message: String
  init(_ message: String) { self.message = message }
  var errorDescription: String? { message }
}
