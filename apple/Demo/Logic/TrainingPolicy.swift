/// The conditions for training.
public struct TrainingPolicy: Sendable {
  /// For a training that the user starts: also on battery, down to half of the charge.
  public static let now = TrainingPolicy(onlyWhileCharging: false)
  /// For learning at night.
  public static let night = TrainingPolicy(window: DailyWindow(from: 22 * 60, to: 6 * 60))

  public var onlyWhileCharging = true
  /// The least charge of the battery, with and without a charger.
  public var leastBatteryCharging = 0.2, leastBattery = 0.5
  public var highestHeat = DeviceState.Heat.fair
  public var window = DailyWindow.allDay

  /// More charge that ends a pause than begins one, so that training does not start and stop again and again.
  private static let margin = 0.05

  public init(onlyWhileCharging: Bool = true, window: DailyWindow = .allDay) {
    self.onlyWhileCharging = onlyWhileCharging
    self.window = window
  }

  /// Why not to train now, as a sentence for the user, or nil. To end a pause takes 5 percent more battery and one step
  /// less heat.
  public func reasonToPause(_ device: DeviceState, isPaused: Bool) -> String? {
    if onlyWhileCharging && !device.isCharging { return "Waiting for a charger." }
    var least = device.isCharging ? leastBatteryCharging : leastBattery
    if isPaused { least = min(1, least + Self.margin) }
    if device.battery < least { return "Waiting for the battery to reach \(Int((100 * least).rounded())) percent." }
    if device.savesPower && !device.isCharging { return "Waiting for Low Power Mode to end." }
    let highest = isPaused ? DeviceState.Heat(rawValue: max(0, highestHeat.rawValue - 1))! : highestHeat
    if device.heat > highest { return "Waiting for the device to cool down." }
    if device.isShortOfMemory { return "Waiting for memory, because other apps need it." }
    if !window.contains(device.minuteOfDay) { return "Waiting until \(window.beginning)." }
    return nil
  }
}
