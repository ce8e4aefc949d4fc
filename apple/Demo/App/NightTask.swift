#if canImport(BackgroundTasks)
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
      MainActor.assumeIsolated { learn(in: task, running.app) }
    }
  }

  /// Asks iOS for the next night, if the user wants it.
  @MainActor static func schedule(_ app: AppModel) {
    guard app.budget.settings.nightly else { return BGTaskScheduler.shared.cancel(taskRequestWithIdentifier: identifier) }
    let request = BGProcessingTaskRequest(identifier: identifier)
    request.requiresExternalPower = true
    let now = Calendar.current.dateComponents([.hour, .minute], from: Date())
    let minute = 60 * (now.hour ?? 0) + (now.minute ?? 0)
    let wait = TrainingPolicy.night.window.minutesUntilNextOpening(minute)
    request.earliestBeginDate = Date(timeIntervalSinceNow: Double(60 * wait))
    do {
      try BGTaskScheduler.shared.submit(request)
    } catch {
      app.board.say(error)
    }
  }

  @MainActor private static func learn(in task: BGTask, _ app: AppModel) {
    schedule(app)  // the next one
    Task {
      await app.trainings.learnAtNight()
      task.setTaskCompleted(success: true)
    }
    task.expirationHandler = { Task { @MainActor in await app.trainings.stop(bySystem: true) } }
  }
}
#endif
