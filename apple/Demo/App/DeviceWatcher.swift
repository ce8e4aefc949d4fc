import DemoLogic
import Foundation
import MobileFT

#if canImport(UIKit)
import UIKit
import os
#endif

/// Tells the training what happens to the device: charger, battery, heat, Low Power Mode, memory and the time of day.
@MainActor final class DeviceWatcher {
  private let trainings: Trainings
  private var tasks: [Task<Void, Never>] = []
  private var isShortOfMemory = false

  init(_ trainings: Trainings) {
    self.trainings = trainings
    #if canImport(UIKit)
    UIDevice.current.isBatteryMonitoringEnabled = true
    let names: [Notification.Name] = [
      UIDevice.batteryStateDidChangeNotification, UIDevice.batteryLevelDidChangeNotification,
      ProcessInfo.thermalStateDidChangeNotification, .NSProcessInfoPowerStateDidChange,
    ]
    watch(UIApplication.didReceiveMemoryWarningNotification) { $0.isShortOfMemory = true }
    #else
    let names: [Notification.Name] = [
      ProcessInfo.thermalStateDidChangeNotification, .NSProcessInfoPowerStateDidChange,
    ]
    #endif
    for name in names { watch(name) { _ in } }
    // The time of day changes without a notification, and iOS does not say when memory is free again.
    tasks.append(
      Task { [weak self] in
        while !Task.isCancelled {
          await self?.report()
          try? await Task.sleep(for: .seconds(30))
          self?.isShortOfMemory = false
        }
      })
  }

  deinit { tasks.forEach { $0.cancel() } }

  /// The most memory of a training in MB: what iOS leaves the app, and half of a Mac's.
  static var memoryLimitMB: Double {
    #if canImport(UIKit)
    let left = os_proc_available_memory()
    if left > 0 { return Double(left + ProcessMemory.now().current) / 1e6 }
    #endif
    return Double(ProcessInfo.processInfo.physicalMemory) / 2e6
  }

  private func watch(_ name: Notification.Name, _ change: @escaping @MainActor (DeviceWatcher) -> Void) {
    tasks.append(
      Task { [weak self] in
        for await _ in NotificationCenter.default.notifications(named: name).map({ _ in () }) {
          guard let self else { return }
          change(self)
          await self.report()
        }
      })
  }

  private func report() async { await trainings.update(Self.state(isShortOfMemory: isShortOfMemory)) }

  /// On iOS, the battery must be monitored.
  static func state(isShortOfMemory: Bool = false) -> DeviceState {
    let process = ProcessInfo.processInfo, now = Calendar.current.dateComponents([.hour, .minute], from: Date())
    var state = DeviceState(
      heat: DeviceState.Heat(rawValue: process.thermalState.rawValue) ?? .critical,
      savesPower: process.isLowPowerModeEnabled, isShortOfMemory: isShortOfMemory,
      minuteOfDay: 60 * (now.hour ?? 0) + (now.minute ?? 0))
    #if canImport(UIKit)
    let device = UIDevice.current
    state.isCharging = device.batteryState == .charging || device.batteryState == .full
    if device.batteryLevel >= 0 { state.battery = Double(device.batteryLevel) }
    #endif
    return state
  }
}
