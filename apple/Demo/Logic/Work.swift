import Foundation
import MobileFT

/// What a ``Session`` computes.
protocol Work: Sendable {
  /// Computes until it is done, or until `mayGoOn`, which is asked after each step, says no. Called again, it goes on with
  /// what it saved, if it saves anything. Returns whether it is done.
  func run(
    mayGoOn: @Sendable () async -> Bool, onStep: @Sendable (TrainingEvent.Step) async -> Void
  ) async throws -> Bool
}

/// A training on a token file. It goes on from the checkpoint in its folder, if there is one.
struct TrainingWork: Work {
  let bundle: URL, tokens: URL, out: URL
  let options: TrainOptions

  func run(
    mayGoOn: @Sendable () async -> Bool, onStep: @Sendable (TrainingEvent.Step) async -> Void
  ) async throws -> Bool {
    var files = Trainer.Files(bundle: bundle, data: tokens, out: out)
    files.resume = exists(out.appendingPathComponent("checkpoint.safetensors"))
    let trainer = try await Trainer(files, options: options)
    do {
      for try await event in trainer {
        guard case .step(let step) = event else { continue }
        await onStep(step)
        if !(await mayGoOn()) { trainer.cancel() }
      }
    } catch MobileFTError.stopped {
      return false
    }
    return true
  }
}

/// A night of a learner. One that may not go on changes nothing, and begins again later.
struct NightWork: Work {
  let bundle: URL, folder: URL, rows: URL
  let options: LearnOptions
  /// Receives the state after the night.
  let done: @Sendable (LearnerState) async throws -> Void

  func run(
    mayGoOn: @Sendable () async -> Bool, onStep: @Sendable (TrainingEvent.Step) async -> Void
  ) async throws -> Bool {
    let learner = try await Learner(bundle: bundle, folder: folder)
    do {
      for try await event in learner.learn(rows: rows, options: options) {
        switch event {
        case .training(.step(let step)):
          await onStep(step)
          if !(await mayGoOn()) { learner.cancel() }
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
