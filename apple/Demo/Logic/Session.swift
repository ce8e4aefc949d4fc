import Foundation
import MobileFT

/// A training that runs while its policy allows it and no short task wants to compute. Otherwise it saves what it can,
/// frees its memory and waits.
actor Session {
  enum State: Sendable, Equatable {
    /// Why it does not run.
    case waiting(String)
    case running
    case done
    case failed(String)
    case stopped
  }

  private let work: any Work
  private let policy: TrainingPolicy
  private let computer: Computer
  private var device: DeviceState
  private var isStopped = false
  private var changes = 0
  private var waiting: [CheckedContinuation<Void, Never>] = []
  private var slice: Task<Bool, any Error>?

  init(_ work: any Work, policy: TrainingPolicy, computer: Computer, device: DeviceState) {
    self.work = work
    self.policy = policy
    self.computer = computer
    self.device = device
  }

  /// A change that forbids training pauses it after the current step.
  func update(_ now: DeviceState) {
    device = now
    if policy.reasonToPause(device, isPaused: false) != nil { slice?.cancel() }
    change()
  }

  /// Ends after the current step.
  func stop() {
    isStopped = true
    slice?.cancel()
    change()
  }

  /// Runs to the end: done, failed or stopped, which is the last state that is reported.
  func run(
    onState: @Sendable (State) async -> Void, onStep: @escaping @Sendable (TrainingEvent.Step) async -> Void
  ) async {
    do {
      var isPaused = false
      while await isPermitted(isPaused: isPaused, onState) {
        await onState(.running)
        if try await computeSlice(onStep) { return await onState(.done) }
        isPaused = policy.reasonToPause(device, isPaused: false) != nil
      }
      await onState(.stopped)
    } catch {
      await onState(.failed(error.localizedDescription))
    }
  }

  /// Waits until the policy allows training. Returns false if the session was stopped.
  private func isPermitted(isPaused: Bool, _ onState: @Sendable (State) async -> Void) async -> Bool {
    var told: String?
    while !isStopped {
      let seen = changes
      guard let reason = policy.reasonToPause(device, isPaused: isPaused) else { return true }
      if reason != told { await onState(.waiting(reason)) }
      told = reason
      await nextChange(after: seen)
    }
    return false
  }

  /// Computes until it is done, is to stop or pause, or a short task wants to compute. Returns whether it is done.
  private func computeSlice(_ onStep: @escaping @Sendable (TrainingEvent.Step) async -> Void) async throws -> Bool {
    let slice = Task { [computer, work] in
      try await computer.slice(whenWanted: { Task { await self.stepAside() } }) {
        try Task.isCancelled ? false : await work.run(onStep: onStep)
      }
    }
    self.slice = slice
    if isStopped || policy.reasonToPause(device, isPaused: false) != nil { slice.cancel() }  // meanwhile
    defer { self.slice = nil }
    return try await slice.value
  }

  private func stepAside() { slice?.cancel() }

  private func change() {
    changes += 1
    waiting.forEach { $0.resume() }
    waiting = []
  }

  private func nextChange(after seen: Int) async {
    if changes == seen { await withCheckedContinuation { waiting.append($0) } }
  }
}
