import Foundation
import MobileFT

/// A training in a folder: its tokens and options, which never change, and its progress.
struct TrainingRun: Sendable {
  enum Phase: String, Codable {
    /// It goes on by itself as soon as possible after the process ended.
    case wanted
    /// The user stopped it, or it failed. It goes on when the user asks for it.
    case resting
    case done
  }

  private struct Description: Codable {
    var steps: Int
    var budgetMB: Int
    var sequenceLength: Int
    var phase: Phase
  }

  private static let longestSequence = 256
  private static let saveEvery = 20  // most steps that are lost if the process dies

  let folder: URL
  private var description: Description

  /// Begins a new run in a folder, and deletes the old one with its adapter.
  static func prepare(in folder: URL, bundle: URL, rows: URL, steps: Int, budgetMB: Int) async throws -> TrainingRun {
    let length = try await sequenceLength(bundle)
    let description = Description(steps: steps, budgetMB: budgetMB, sequenceLength: length, phase: .wanted)
    let made = TrainingRun(folder: try SafeFiles.beside(folder), description: description)
    let dataset = try await Dataset(rows: rows, bundle: bundle)
    try await dataset.writeTokens(to: made.tokens, options: made.options)
    try SafeFiles.write(description, to: made.descriptionFile)
    try SafeFiles.replace(folder)
    return TrainingRun(folder: folder, description: description)
  }

  /// Returns nil if there is none.
  static func open(_ folder: URL) throws -> TrainingRun? {
    let run = TrainingRun(
      folder: folder, description: Description(steps: 0, budgetMB: 0, sequenceLength: 0, phase: .done))
    guard let found = try SafeFiles.read(Description.self, from: run.descriptionFile) else { return nil }
    return TrainingRun(folder: folder, description: found)
  }

  /// Options to plan the run that ``prepare(in:bundle:rows:steps:budgetMB:)`` would begin.
  static func options(bundle: URL, steps: Int, budgetMB: Int) async throws -> TrainOptions {
    var options = TrainOptions()
    options.steps = steps
    options.budget = "\(budgetMB)MB"
    options.sequenceLength = try await sequenceLength(bundle)
    options.saveEvery = saveEvery
    return options
  }

  /// The longest sequence to train on.
  static func sequenceLength(_ bundle: URL) async throws -> Int {
    min(longestSequence, try await TrainingBundle(at: bundle).maximumSequenceLength)
  }

  var options: TrainOptions {
    var options = TrainOptions()
    options.steps = description.steps
    options.budget = "\(description.budgetMB)MB"
    options.sequenceLength = description.sequenceLength
    options.saveEvery = Self.saveEvery
    return options
  }

  var steps: Int { description.steps }
  var phase: Phase { description.phase }

  /// Also saves it.
  mutating func setPhase(_ phase: Phase) throws {
    description.phase = phase
    try SafeFiles.write(description, to: descriptionFile)
  }

  var tokens: URL { folder.appendingPathComponent("tokens") }
  /// The folder of adapter and checkpoint.
  var out: URL { folder.appendingPathComponent("out", isDirectory: true) }
  var log: StepLog { StepLog(file: folder.appendingPathComponent("steps.tsv")) }
  private var descriptionFile: URL { folder.appendingPathComponent("run.json") }
}
