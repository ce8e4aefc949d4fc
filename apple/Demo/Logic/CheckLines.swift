import Foundation

/// The facts of a device that a ``Check`` prints first.
public struct DeviceFacts: Encodable, Sendable {
  let event = "device"
  let pid = ProcessInfo.processInfo.processIdentifier
  let model: String
  let system = ProcessInfo.processInfo.operatingSystemVersionString
  let memory = ProcessInfo.processInfo.physicalMemory
  /// The number of cores of each performance level, the fastest first.
  let cores: [Int]
  let limitMB: Double

  enum CodingKeys: String, CodingKey {
    case event, pid, model, system, memory, cores
    case limitMB = "limit_mb"
  }

  /// `limitMB` is the most memory that the system allows the app.
  public init(cores: [Int], limitMB: Double) {
    var name = utsname()
    uname(&name)
    model = withUnsafeBytes(of: name.machine) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
    self.cores = cores.isEmpty ? [ProcessInfo.processInfo.processorCount] : cores
    self.limitMB = limitMB
  }
}

struct HeatLine: Encodable {
  let event = "heat"
  let thermal: String
  let batteryPercent: Int
  let charging: Bool

  enum CodingKeys: String, CodingKey {
    case event, thermal, charging
    case batteryPercent = "battery_percent"
  }

  init(_ state: DeviceState) {
    thermal = "\(state.heat)"
    batteryPercent = Int((100 * state.battery).rounded())
    charging = state.isCharging
  }
}

struct ErrorLine: Encodable {
  let event = "error"
  let message: String
}

/// A value as JSON in one line.
func line(_ value: some Encodable) throws -> String {
  let encoder = JSONEncoder()
  encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
  return String(decoding: try encoder.encode(value), as: UTF8.self)
}
