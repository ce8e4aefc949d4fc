import DemoLogic
import SwiftUI

#if canImport(UIKit)
import UIKit
#endif

/// Fine-tunes a language model on the device, on examples that the user types or imports.
struct DemoApp: App {
  @State private var start = Result { try Running() }
  @Environment(\.scenePhase) private var phase

  init() {
    #if canImport(UIKit)
    if let running = try? start.get() { NightTask.register(running) }
    #endif
  }

  var body: some Scene {
    WindowGroup {
      switch start {
      case .success(let running):
        ContentView(app: running.app)
          .task { await running.app.look() }
          .onChange(of: phase) { phaseChanged(running) }
          .onChange(of: running.app.trainings.isRunning) { keepAwake(running.app.trainings.isRunning) }
      case .failure(let error):
        Text(error.localizedDescription).padding()
      }
    }
  }

  private func phaseChanged(_ running: Running) {
    #if canImport(UIKit)
    if phase == .background {
      NightTask.schedule(running.app)
      // iOS suspends the app soon. A training goes on when the user comes back.
      let saving = BackgroundTime()
      Task {
        await running.app.trainings.stop(bySystem: true)
        saving.end()
      }
    }
    #endif
    if phase == .active { running.app.trainings.resume() }
  }

  /// With the screen locked, iOS would suspend the app.
  private func keepAwake(_ isRunning: Bool) {
    #if canImport(UIKit)
    UIApplication.shared.isIdleTimerDisabled = isRunning
    #endif
  }
}

#if canImport(UIKit)
/// Time that iOS gives an app in the background to finish something.
@MainActor final class BackgroundTime {
  private var identifier = UIBackgroundTaskIdentifier.invalid

  init() {
    identifier = UIApplication.shared.beginBackgroundTask(withName: "checkpoint") { [weak self] in self?.end() }
  }

  func end() {
    if identifier != .invalid { UIApplication.shared.endBackgroundTask(identifier) }
    identifier = .invalid
  }
}
#endif

/// What lives as long as the process.
@MainActor final class Running {
  let app: AppModel
  private let watcher: DeviceWatcher

  init() throws {
    let folder = try FileManager.default.url(
      for: .applicationSupportDirectory, in: .userDomainMask, appropriateFor: nil, create: true
    ).appendingPathComponent("mobile-ft", isDirectory: true)
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    app = try AppModel(AppFiles(folder: folder), limitMB: DeviceWatcher.memoryLimitMB)
    watcher = DeviceWatcher(app.trainings)
  }
}
