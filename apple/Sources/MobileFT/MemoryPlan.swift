import Foundation

/// The planned peak memory of a training.
public struct MemoryPlan: Sendable, Decodable {
  /// All memory in MB (10^6 bytes), including weights that are mapped from files.
  public let plannedMB: Double
  /// Anonymous memory in MB, which the system cannot drop.
  public let anonymousMB: Double
  /// The option "budget" in MB, or nil without one. Training rejects a plan that exceeds it.
  public let budgetMB: Double?
  /// The components of the total in MB, by name.
  public let componentsMB: [String: Double]
  /// The estimated time of a step on this device, from a short measurement.
  public let stepSeconds: Double

  enum CodingKeys: String, CodingKey {
    case plannedMB = "planned_mb"
    case anonymousMB = "planned_anon_mb"
    case budgetMB = "budget_mb"
    case componentsMB = "components_mb"
    case stepSeconds = "step_seconds"
  }
}
