import DemoLogic
import SwiftUI

#if canImport(UIKit)
import UIKit
#endif

/// Fine-tunes a language model on the device, on examples that the user types or imports.
@main struct DemoApp: App {
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
      let saving = UIApplication.shared.beginBackgroundTask()
      Task {
        await running.app.trainings.stop(bySystem: true)
        UIApplication.shared.endBackgroundTask(saving)
      }
    }
    #endif
    if phase == .active && running.app.trainings.isInterrupted {
      Task { await running.app.trainings.goOn() }
    }
  }
}

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
