/// A time of day, such as 22:00 to 6:00. Minutes of the day are local time, 0 to 1439.
public struct DailyWindow: Sendable, Equatable {
  static let day = 24 * 60
  public static let allDay = DailyWindow(from: 0, to: 0)

  let from: Int, to: Int

  /// If `to` is before `from`, the window passes midnight. If they are equal, it is the whole day.
  public init(from: Int, to: Int) {
    self.from = from
    self.to = to
  }

  /// Whether the window is open. The minute `to` is not in it.
  public func contains(_ minute: Int) -> Bool {
    from == to || minutes(from, minute) < minutes(from, to)
  }

  /// Minutes until the window opens next, even if it is open now: 1 to 1440.
  public func minutesUntilNextOpening(_ minute: Int) -> Int {
    let wait = minutes(minute, from)
    return wait == 0 ? Self.day : wait
  }

  /// When it opens, such as "22:00".
  var beginning: String {
    let minute = from % 60
    return "\(from / 60):\(minute < 10 ? "0" : "")\(minute)"
  }

  private func minutes(_ earlier: Int, _ later: Int) -> Int { (later - earlier + Self.day) % Self.day }
}
