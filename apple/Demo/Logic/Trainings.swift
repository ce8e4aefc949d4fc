import Foundation
import MobileFT
import Observation

/// Starts, resumes, stops and describes the training of this app. There is one at a time.
@MainActor @Observable public final class Trainings {
  public private(set) var chart = LossChart()
  /// The latest step of the current or last training; 0 if there is none.
  public private(set) var step = 0
  /// Whether there is a training in this process, running or waiting.
  public private(set) var isOn = false
  /// Whether it computes, so that the device should not sleep.
  public var isRunning: Bool { state == .running }

  private let files: AppFiles
  private let computer: Computer
  private let budget: Budget
  private let board: Board
  private var run: TrainingRun?
  private var nights: Nights
  private var session: Session?
  private var state: Session.State?
  private var isNight = false
  private var isStopping = false
  private var goesOn = false  // by itself, after the system stopped it
  private var loss: Double?
  private var isWantedAgain = false
  private var nightStep = 0
  private var stopping: [CheckedContinuation<Void, Never>] = []
  private var device = DeviceState()

  init(_ files: AppFiles, _ computer: Computer, _ budget: Budget, _ board: Board) throws {
    self.files = files
    self.computer = computer
    self.budget = budget
    self.board = board
    nights = try Nights(files)
    run = try TrainingRun.open(files.run)
    chart = try run?.log.chart() ?? LossChart()
    step = chart.points.last?.step ?? 0
  }

  /// Whether there is an unfinished training to go on with.
  public var isUnfinished: Bool { !isOn && run != nil && run?.phase != .done }
  /// Whether a training should go on by itself, because the process died.
  public var isInterrupted: Bool { !isOn && run?.phase == .wanted }
  public var isOnAtNight: Bool { isOn && isNight }
  /// The steps of the current or last training; 0 if there is none.
  public var steps: Int { run?.steps ?? 0 }
  /// What the last night decided; "" if there was none.
  public var nightStatus: String { nights.status }

  /// The folder of the adapter that was written last, by a training or at night.
  public var adapter: URL? {
    let trained = run.flatMap { hasAdapter($0.out) ? $0.out : nil }
    guard let learned = nights.adapter, let trained else { return trained ?? nights.adapter }
    return written(learned) > written(trained) ? learned : trained
  }

  private func written(_ adapter: URL) -> Date {
    let file = adapter.appendingPathComponent("adapter_model.safetensors")
    return (try? file.resourceValues(forKeys: [.contentModificationDateKey]).contentModificationDate) ?? .distantPast
  }

  /// A line for the user.
  public var status: String {
    if case .failed(let message) = state { return "Failed: \(message)" }
    if isOn && isStopping { return "Stopping after this step." }
    if isOn, case .waiting(let reason) = state { return reason }
    if isOn && state == nil { return "Preparing the training." }
    if isOnAtNight { return "Learning from new examples, step \(nightStep)." }
    guard let run else { return "Not trained yet." }
    let last = loss.map { ", loss \(String(format: "%.3f", $0))" } ?? ""
    if isOn { return "Step \(step) of \(run.steps)\(last)" }
    return run.phase == .done ? "Done\(last)." : "Stopped at step \(step) of \(run.steps)\(last)."
  }

  /// Trains on the current examples. Replaces the last training. Returns at the end.
  public func begin() async {
    await compute(policy: .now) { [self] in
      guard let bundle = files.bundle else { throw AppError("Choose a model first.") }
      let steps = budget.steps, megabytes = try await budget.megabytes()
      // Written beside the old one, which stays if this fails.
      let made = try await computer.task { [files] in
        try await TrainingRun.prepare(
          in: files.run, bundle: bundle, rows: files.rows, steps: steps, budgetMB: megabytes)
      }
      step = 0
      chart = LossChart()
      return try work(made)
    }
  }

  /// Goes on with the unfinished training. Returns at the end.
  public func goOn() async {
    await compute(policy: .now) { [self] in
      guard let run, run.phase != .done else { return nil }
      return try work(run)
    }
  }

  /// Learns from the examples that are new since the last night, if there are any. Returns at the end.
  public func learnAtNight() async {
    await compute(policy: .night) { [self] in
      guard let bundle = files.bundle else { return nil }
      let rows = try await Dataset(rows: files.rows, bundle: bundle).count
      if rows == nights.rows { return nil }
      let megabytes = try await budget.megabytes()
      return try await nights.work(bundle: bundle, budgetMB: megabytes) { state in
        try await self.keep(state, rows: rows)
      }
    }
  }

  /// Stops the training after its step. It goes on when the user asks for it, or, if the system stopped it, by itself.
  /// Returns when its checkpoint is written.
  public func stop(bySystem: Bool = false) async {
    guard isOn else { return }
    isStopping = true
    isWantedAgain = false
    if !bySystem { goesOn = false }
    await session?.stop()
    if isOn { await withCheckedContinuation { stopping.append($0) } }
  }

  /// Goes on with a training that the system stopped or whose process died: at once, or after its checkpoint.
  public func resume() {
    if isOn {
      isWantedAgain = isStopping && goesOn
    } else if isInterrupted {
      Task { await goOn() }
    }
  }

  public func update(_ device: DeviceState) async {
    self.device = device
    await session?.update(device)
  }

  /// Called when the model is another one, which can use nothing of what the last one learned.
  func forget() throws {
    try nights.clear()
    try SafeFiles.delete(files.run)
    (run, chart, step, loss, state) = (nil, LossChart(), 0, nil, nil)
  }

  private func keep(_ state: LearnerState, rows: Int) throws { try nights.keep(state, rows: rows) }

  private func work(_ chosen: TrainingRun) throws -> any Work {
    guard let bundle = files.bundle else { throw AppError("Choose a model first.") }
    var chosen = chosen
    try chosen.setPhase(.wanted)
    run = chosen
    return TrainingWork(bundle: bundle, tokens: chosen.tokens, out: chosen.out, options: chosen.options)
  }

  private func compute(policy: TrainingPolicy, _ choose: () async throws -> (any Work)?) async {
    if isOn { return }
    (isOn, isNight, isStopping, goesOn, state, loss) = (true, policy.window != .allDay, false, true, nil, nil)
    board.say("")
    do {
      if let work = try await choose() {
        await follow(Session(work, policy: policy, computer: computer, device: device))
        session = nil
        try keepPhase()
      }
    } catch {
      session = nil
      state = .failed(error.localizedDescription)
    }
    isOn = false
    if isWantedAgain { resume() }
    isWantedAgain = false
    stopping.forEach { $0.resume() }
    stopping = []
  }

  private func follow(_ session: Session) async {
    self.session = session
    if isStopping { await session.stop() }
    await session.run(
      onState: { await self.became($0) },
      onStep: { await self.stepped($0) })
  }

  private func became(_ state: Session.State) { self.state = state }

  private func stepped(_ found: TrainingEvent.Step) {
    if isNight {
      nightStep = found.step
      return
    }
    step = found.step
    loss = found.loss
    chart.add(step: found.step, loss: found.loss, memoryMB: found.memoryMB)
    do {
      try run?.log.add(step: found.step, loss: found.loss, memoryMB: found.memoryMB)
    } catch {
      board.say(error)  // the chart alone is incomplete
    }
  }

  /// A night keeps its own state.
  private func keepPhase() throws {
    if isNight || run == nil { return }
    switch state {
    case .done: try run?.setPhase(.done)
    case .failed: try run?.setPhase(.resting)
    case .stopped where !goesOn: try run?.setPhase(.resting)
    default: break
    }
  }
}
