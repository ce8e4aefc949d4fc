import Foundation

/// What a night reports.
public enum LearnerEvent: Sendable {
  /// An event of the night's training.
  case training(TrainingEvent)
  /// The decision.
  case verdict(Verdict)
  /// The night is over.
  case done(LearnerState)

  init(json: String) throws {
    self =
      switch try decoded(EventHead.self, json).event {
      case "verdict": .verdict(try decoded(Verdict.self, json))
      case "done": .done(try decoded(LearnerState.self, json))
      default: .training(try TrainingEvent(json: json))
      }
  }
}

/// What a night decided.
public struct Verdict: Sendable, Decodable {
  public let adopted: Bool
  /// Whether the next night goes on from the result, although it was not adopted.
  public let undecided: Bool
  public let why: String
  /// Held-out rows that decided.
  public let rows: Int
  /// By how much their loss per token fell, and how likely chance alone makes such a gain.
  public let gain: Double, chance: Double
  /// The perplexity of general text, relative to the base model.
  public let general: Double
}

/// What a learner's folder has.
public struct LearnerState: Sendable, Decodable {
  /// The current version; 0 is the base model.
  public let version: Int
  /// The folder of the current version's adapter; nil for the base model.
  public var adapter: URL? { adapterPath.isEmpty ? nil : URL(fileURLWithPath: adapterPath, isDirectory: true) }
  /// Rows that are kept, and how many of them no version was trained on.
  public let rows: Int, heldOut: Int
  /// The decisions of all nights.
  public let nights: [Verdict]

  let adapterPath: String

  enum CodingKeys: String, CodingKey {
    case version, rows, nights
    case heldOut = "held_out"
    case adapterPath = "adapter"
  }
}
