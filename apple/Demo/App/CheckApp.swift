import DemoLogic
import SwiftUI

#if canImport(UIKit)
import UIKit
#endif

/// The app, or a check of this device if the arguments ask for one.
@main @MainActor enum Launch {
  static let check = Check(
    CommandLine.arguments, folder: URL.documentsDirectory.appendingPathComponent("check", isDirectory: true))

  static func main() { check == nil ? DemoApp.main() : CheckApp.main() }
}

/// A check, then the end of the process. It has a window, since iOS ends apps without one, and keeps the screen on,
/// since iOS suspends apps while it is off.
struct CheckApp: App {
  var body: some Scene {
    WindowGroup {
      Text("A check of this device runs. The app ends afterwards.").padding().task { await run() }
    }
  }

  private func run() async {
    #if canImport(UIKit)
    UIApplication.shared.isIdleTimerDisabled = true
    UIDevice.current.isBatteryMonitoringEnabled = true
    #endif
    let facts = DeviceFacts(cores: Self.cores, limitMB: DeviceWatcher.memoryLimitMB)
    if let check = Launch.check { exit(await check.run(facts) { await DeviceWatcher.state() }) }
  }

  /// The number of cores of each performance level, the fastest first.
  private static var cores: [Int] {
    (0..<3).compactMap { level in
      var count: Int32 = 0, size = MemoryLayout<Int32>.size
      return sysctlbyname("hw.perflevel\(level).physicalcpu", &count, &size, nil, 0) == 0 ? Int(count) : nil
    }
  }
}
