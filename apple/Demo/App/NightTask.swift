#if os(iOS) || STUBS
import BackgroundTasks
import DemoLogic
import Foundation

/// Learns at night, in a task that iOS starts while the device charges and nobody uses it.
enum NightTask {
  /// Also in the app's Info.plist.
  private static let identifier = "ai.mobileft.demo.night"

  /// Must be called before the app has finished launching.
  @MainActor static func register(_ running: Running) {
    BGTaskScheduler.shared.register(forTaskWithIdentifier: identifier, using: .main) { task in
      nonisolated(unsafe) let task = task  // this is the main queue, and nobody else has it
      MainActor.assumeIsolated { learn(in: task, running.app) }
    }
  }

  /// Asks iOS for a night, if the user wants it: now, if it is night and `next` is false, or when the next night begins.
  @MainActor static func schedule(_ app: AppModel, next: Bool = false) {
    guard app.budget.settings.nightly else { return BGTaskScheduler.shared.cancel(taskRequestWithIdentifier: identifier) }
    let request = BGProcessingTaskRequest(identifier: identifier)
    request.requiresExternalPower = true
    if next || !isNight {
      let wait = TrainingPolicy.night.window.minutesUntilNextOpening(minuteOfDay)
      request.earliestBeginDate = Date(timeIntervalSinceNow: Double(60 * wait))
    }
    do {
      try BGTaskScheduler.shared.submit(request)
    } catch {
      app.board.say(error)
    }
  }

  private static var isNight: Bool { TrainingPolicy.night.window.contains(minuteOfDay) }

  private static var minuteOfDay: Int {
    let now = Calendar.current.dateComponents([.hour, .minute], from: Date())
    return 60 * (now.hour ?? 0) + (now.minute ?? 0)
  }

  @MainActor private static func learn(in task: BGTask, _ app: AppModel) {
    schedule(app, next: true)
    if !isNight { return task.setTaskCompleted(success: true) }
    task.expirationHandler = { @Sendable in
      Task { @MainActor in await app.trainings.stop(bySystem: true) }
    }
    Task {
      await app.trainings.learnAtNight()
      task.setTaskCompleted(success: true)
    }
  }
}
#endif
