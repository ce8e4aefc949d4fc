import Foundation
import MobileFT
import Observation

/// The user's settings of training time and memory, and the runtime's plan for them.
@MainActor @Observable public final class Budget {
  /// The plan for the slider's position, or why it is not possible; "" until it is known.
  public private(set) var text = ""
  public var settings: Settings {
    didSet { if settings != oldValue { saveSoon() } }
  }

  private static let moment = Duration.milliseconds(200)

  private let files: AppFiles
  private let computer: Computer
  private let board: Board
  private let limitMB: Double
  private var slider: BudgetSlider?
  private var asked = 0
  private var saving: Task<Void, Never>?

  init(_ files: AppFiles, _ computer: Computer, _ board: Board, limitMB: Double) throws {
    self.files = files
    self.computer = computer
    self.board = board
    self.limitMB = limitMB
    settings = try SafeFiles.read(Settings.self, from: files.settings) ?? Settings()
  }

  var steps: Int { settings.steps }

  /// The budget of the slider's position.
  func megabytes() async throws -> Int { try await knownSlider().budgetMB(settings.position) }

  /// Plans for the settings after a moment in which they do not change. Of several calls at a time, the last one counts.
  public func ask() async {
    asked += 1
    let number = asked
    guard let bundle = files.bundle else { return }
    try? await Task.sleep(for: Self.moment)
    if number != asked { return }
    do {
      let slider = try await knownSlider()
      if number != asked { return }
      let position = settings.position, steps = settings.steps
      let found = try await Self.plan(computer, bundle, steps: steps, budgetMB: slider.budgetMB(position))
      if number != asked { return }
      text = slider.describe(position, steps: steps, plan: found)
    } catch {
      if number == asked { text = error.localizedDescription }
    }
  }

  /// Called when the model has changed.
  func forget() async {
    slider = nil
    await ask()
  }

  private func knownSlider() async throws -> BudgetSlider {
    if let slider { return slider }
    guard let bundle = files.bundle else { throw AppError("Choose a model first.") }
    let smallest = try await Self.plan(computer, bundle, steps: settings.steps, budgetMB: 1)
    let made = BudgetSlider(smallestPlanMB: smallest.plannedMB, limitMB: limitMB)
    slider = made
    return made
  }

  private static func plan(
    _ computer: Computer, _ bundle: URL, steps: Int, budgetMB: Int
  ) async throws -> MemoryPlan {
    try await computer.task {
      let options = try await TrainingRun.options(bundle: bundle, steps: steps, budgetMB: budgetMB)
      return try await TrainingBundle(at: bundle).plan(options)
    }
  }

  private func saveSoon() {
    saving?.cancel()
    saving = Task {
      try? await Task.sleep(for: Self.moment)
      if Task.isCancelled { return }
      do {
        try SafeFiles.write(settings, to: files.settings)
      } catch {
        board.say(error)
      }
    }
  }
}
