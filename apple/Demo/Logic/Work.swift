import Foundation
import MobileFT

/// What a ``Session`` computes.
protocol Work: Sendable {
  /// Computes until it is done or its task is cancelled. Called again, it goes on with what it saved, if it saves anything.
  /// Returns whether it is done.
  func run(onStep: @Sendable (TrainingEvent.Step) async -> Void) async throws -> Bool
}

/// A training on a token file. It goes on from the checkpoint in its folder, if there is one.
struct TrainingWork: Work {
  let bundle: URL, tokens: URL, out: URL
  let options: TrainOptions

  func run(onStep: @Sendable (TrainingEvent.Step) async -> Void) async throws -> Bool {
    var files = Trainer.Files(bundle: bundle, data: tokens, out: out)
    files.resume = exists(out.appendingPathComponent("checkpoint.safetensors"))
    do {
      for try await event in try await Trainer(files, options: options) {
        if case .step(let step) = event { await onStep(step) }
      }
    } catch MobileFTError.stopped {
      return false
    }
    return true
  }
}

/// A night of a learner. One that is cancelled changes nothing, and begins again later.
struct NightWork: Work {
  let bundle: URL, folder: URL, rows: URL
  let options: LearnOptions
  /// Receives the state after the night.
  let done: @Sendable (LearnerState) async throws -> Void

  func run(onStep: @Sendable (TrainingEvent.Step) async -> Void) async throws -> Bool {
    let learner = try await Learner(bundle: bundle, folder: folder)
    do {
      for try await event in learner.learn(rows: rows, options: options) {
        switch event {
        case .training(.step(let step)): await onStep(step)
        case .done(let state): try await done(state)
        default: break
        }
      }
    } catch MobileFTError.stopped {
      return false
    }
    return true
  }
}
