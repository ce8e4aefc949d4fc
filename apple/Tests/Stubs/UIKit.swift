// What `Demo/App` uses of UIKit, and of Foundation that Linux lacks; see SwiftUI.swift.

import Foundation

@MainActor public final class UIDevice {
  public static var current: UIDevice { fatalError() }
  public nonisolated static var batteryStateDidChangeNotification: Notification.Name { fatalError() }
  public nonisolated static var batteryLevelDidChangeNotification: Notification.Name { fatalError() }
  public enum BatteryState: Int, Sendable { case unknown, unplugged, charging, full }
  public var isBatteryMonitoringEnabled: Bool { get { fatalError() } set {} }
  public var batteryState: BatteryState { fatalError() }
  public var batteryLevel: Float { fatalError() }
}
@MainActor public final class UIApplication {
  public nonisolated static var didReceiveMemoryWarningNotification: Notification.Name { fatalError() }
  public static var shared: UIApplication { fatalError() }
  public var isIdleTimerDisabled: Bool { get { fatalError() } set {} }
  public func beginBackgroundTask(
    withName name: String?, expirationHandler: (@MainActor @Sendable () -> Void)?
  ) -> UIBackgroundTaskIdentifier { fatalError() }
  public func endBackgroundTask(_ identifier: UIBackgroundTaskIdentifier) {}
}
public struct UIBackgroundTaskIdentifier: Sendable, Equatable {
  public static var invalid: UIBackgroundTaskIdentifier { fatalError() }
}

extension ProcessInfo {
  public enum ThermalState: Int, Sendable { case nominal, fair, serious, critical }
  public static var thermalStateDidChangeNotification: Notification.Name { fatalError() }
  public var thermalState: ThermalState { fatalError() }
  public var isLowPowerModeEnabled: Bool { fatalError() }
}
extension Notification.Name { public static var NSProcessInfoPowerStateDidChange: Notification.Name { fatalError() } }
extension NotificationCenter {
  public func notifications(named name: Notification.Name) -> AsyncStream<Notification> { fatalError() }
}
extension URL { public static var documentsDirectory: URL { fatalError() } }
public func sysctlbyname(
  _ name: UnsafePointer<CChar>!, _ old: UnsafeMutableRawPointer!, _ oldSize: UnsafeMutablePointer<Int>!,
  _ new: UnsafeMutableRawPointer!, _ newSize: Int
) -> Int32 { fatalError() }
