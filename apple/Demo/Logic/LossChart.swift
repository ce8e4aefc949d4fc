/// Loss and memory of a training of any length, in a limited number of points: if there are too many, pairs of points
/// become one.
public struct LossChart: Sendable {
  /// One step, or several consecutive ones.
  public struct Point: Sendable, Identifiable, Equatable {
    /// The last step.
    public let step: Int
    /// The mean loss.
    public let loss: Double
    /// The exponential moving average of the loss at the last step.
    public let smoothedLoss: Double
    /// The most memory in MB.
    public let memoryMB: Double
    public var id: Int { step }

    /// This point and the next one, of so many steps each.
    func merged(with next: Point, _ steps: Int, _ nextSteps: Int) -> Point {
      let mean = (loss * Double(steps) + next.loss * Double(nextSteps)) / Double(steps + nextSteps)
      return Point(
        step: next.step, loss: mean, smoothedLoss: next.smoothedLoss, memoryMB: max(memoryMB, next.memoryMB))
    }
  }

  /// Decay of the moving average per step, which averages about ten steps.
  private static let decay = 0.9

  public private(set) var points: [Point] = []
  private let mostPoints: Int
  private var stepsPerPoint = 1, stepsOfLast = 0
  private var weightedLosses = 0.0, weights = 0.0

  /// `mostPoints` must be even and at least 2.
  public init(mostPoints: Int = 200) {
    precondition(mostPoints >= 2 && mostPoints % 2 == 0)
    self.mostPoints = mostPoints
  }

  /// Adds a step. Steps that are there already are ignored: a resumed training repeats the last ones exactly.
  public mutating func add(step: Int, loss: Double, memoryMB: Double) {
    if let last = points.last, step <= last.step { return }
    weightedLosses = Self.decay * weightedLosses + loss
    weights = Self.decay * weights + 1
    let point = Point(step: step, loss: loss, smoothedLoss: weightedLosses / weights, memoryMB: memoryMB)
    if let last = points.last, stepsOfLast < stepsPerPoint {
      points[points.count - 1] = last.merged(with: point, stepsOfLast, 1)
      stepsOfLast += 1
      return
    }
    if points.count == mostPoints { halve() }
    points.append(point)
    stepsOfLast = 1
  }

  /// Merges each pair of points, all of which are complete.
  private mutating func halve() {
    points = stride(from: 0, to: points.count, by: 2).map {
      points[$0].merged(with: points[$0 + 1], stepsPerPoint, stepsPerPoint)
    }
    stepsPerPoint *= 2
  }
}
