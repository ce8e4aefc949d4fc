/// What the app knows of the device.
public struct DeviceState: Sendable, Equatable {
  public var isCharging: Bool
  /// 0 to 1; 1 for a Mac without a battery.
  public var battery: Double
  public var heat: Heat
  /// Low Power Mode.
  public var savesPower: Bool
  /// Whether the system has warned of low memory lately.
  public var isShortOfMemory: Bool
  /// Minutes since midnight, local time.
  public var minuteOfDay: Int

  /// As ProcessInfo.ThermalState, in the same order.
  public enum Heat: Int, Sendable, Comparable {
    case nominal, fair, serious, critical
    public static func < (a: Heat, b: Heat) -> Bool { a.rawValue < b.rawValue }
  }

  public init(
    isCharging: Bool = true, battery: Double = 1, heat: Heat = .nominal, savesPower: Bool = false,
    isShortOfMemory: Bool = false, minuteOfDay: Int = 0
  ) {
    self.isCharging = isCharging
    self.battery = battery
    self.heat = heat
    self.savesPower = savesPower
    self.isShortOfMemory = isShortOfMemory
    self.minuteOfDay = minuteOfDay
  }
}
