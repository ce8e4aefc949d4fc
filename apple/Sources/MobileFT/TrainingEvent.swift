import Foundation

/// What a training reports. `docs/reference/events.md` describes the fields.
public enum TrainingEvent: Sendable {
  case plan(MemoryPlan)
  case step(Step)
  case evaluation(Evaluation)
  /// A checkpoint was written.
  case saved(step: Int)
  /// The training ends early, after a checkpoint.
  case stopped(reason: String)
  case done(Summary)
  /// Any other event, as JSON.
  case other(kind: String, json: String)

  public struct Step: Sendable, Decodable {
    /// The number of the step, from 1.
    public let step: Int
    public let loss: Double
    public let learningRate: Double
    public let tokens: Int
    public let seconds: Double
    /// Resident memory after the step in MB.
    public let memoryMB: Double

    enum CodingKeys: String, CodingKey {
      case step, loss, tokens, seconds
      case learningRate = "lr"
      case memoryMB = "rss_mb"
    }
  }

  public struct Evaluation: Sendable, Decodable {
    public let step: Int
    public let loss: Double
    /// Whether no validation before had a lower loss.
    public let best: Bool
    public let seconds: Double
  }

  public struct Summary: Sendable, Decodable {
    public let steps: Int
    public let losses: [Double]
    public let peakMemoryMB: Double

    enum CodingKeys: String, CodingKey {
      case steps, losses
      case peakMemoryMB = "peak_rss_mb"
    }
  }
}

/// The parts of an event that tell what it is.
struct EventHead: Decodable {
  let event: String
  let step: Int?
  let reason: String?
}

extension TrainingEvent {
  init(json: String) throws {
    let head = try decoded(EventHead.self, json)
    self =
      switch head.event {
      case "plan": .plan(try decoded(MemoryPlan.self, json))
      case "step": .step(try decoded(Step.self, json))
      case "eval": .evaluation(try decoded(Evaluation.self, json))
      case "saved": .saved(step: head.step ?? 0)
      case "stopped": .stopped(reason: head.reason ?? "")
      case "done": .done(try decoded(Summary.self, json))
      default: .other(kind: head.event, json: json)
      }
  }
}

/// Reads what the C library reports.
func decoded<T: Decodable>(_ type: T.Type, _ json: String) throws -> T {
  do {
    return try JSONDecoder().decode(type, from: Data(json.utf8))
  } catch {
    throw MobileFTError.failed("an event of the runtime cannot be read: \(error)")
  }
}
