import Foundation
import MobileFT
import Observation

/// Answers the same question before and after training: without the adapter, and with it if there is one.
@MainActor @Observable public final class Chat {
  public private(set) var before = ""
  public private(set) var after = ""
  /// Whether an answer is being computed.
  public private(set) var isOn = false

  private let files: AppFiles
  private let computer: Computer
  private let trainings: Trainings
  private let board: Board
  private var answering: Task<Void, any Error>?

  init(_ files: AppFiles, _ computer: Computer, _ trainings: Trainings, _ board: Board) {
    self.files = files
    self.computer = computer
    self.trainings = trainings
    self.board = board
  }

  /// Asks a question. A training waits until the answers are complete.
  public func ask(_ question: String) async {
    if isOn { return }
    let question = question.trimmingCharacters(in: .whitespacesAndNewlines)
    if question.isEmpty { return board.say("The question is empty.") }
    guard let bundle = files.bundle else { return board.say("Choose a model first.") }
    (isOn, before, after) = (true, "", "")
    defer { isOn = false }
    board.say("")
    let adapter = trainings.adapter
    let answering = Task { [computer] in
      try await computer.task { [self] in
        let generator = try await Generator(bundle: bundle)
        for try await piece in generator.answer([.user(question)]) { await add(piece, after: false) }
        guard let adapter else { return }
        for try await piece in generator.answer([.user(question)], adapter: adapter) { await add(piece, after: true) }
      }
    }
    self.answering = answering
    do {
      try await answering.value
    } catch is CancellationError {
    } catch {
      board.say(error)
    }
  }

  /// Ends the answer after the next piece.
  public func stop() { answering?.cancel() }

  private func add(_ piece: String, after training: Bool) {
    if training { after += piece } else { before += piece }
  }
}
