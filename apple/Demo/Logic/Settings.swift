/// The user's settings.
public struct Settings: Sendable, Equatable, Codable {
  public static let mostSteps = 10_000

  /// Steps of a training.
  public var steps = 60 { didSet { steps = min(max(steps, 1), Self.mostSteps) } }
  /// The slider of the budget, 0 to 1.
  public var position = 0.5 { didSet { position = min(max(position, 0), 1) } }
  /// Whether to learn at night.
  public var nightly = false

  public init() {}
}
