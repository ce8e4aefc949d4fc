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
  private var isStopped = false

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
    (isOn, isStopped, before, after) = (true, false, "", "")
    defer { isOn = false }
    board.say("")
    do {
      let adapter = trainings.adapter
      try await computer.task { [self] in
        let generator = try await Generator(bundle: bundle)
        for try await piece in generator.answer([.user(question)]) {
          if await !takes(piece, after: false) { return }
        }
        guard let adapter else { return }
        for try await piece in generator.answer([.user(question)], adapter: adapter) {
          if await !takes(piece, after: true) { return }
        }
      }
    } catch {
      board.say(error)
    }
  }

  /// Ends the answer after the next piece.
  public func stop() { isStopped = true }

  private func takes(_ piece: String, after training: Bool) -> Bool {
    if training { after += piece } else { before += piece }
    return !isStopped
  }
}
