import Foundation
import MobileFT
import Observation

/// The state of the app without its views; there is one per process. What must survive the process is in files.
@MainActor @Observable public final class AppModel {
  public let board = Board()
  public let budget: Budget
  public let examples: Examples
  public let trainings: Trainings
  public let chat: Chat
  /// The folder of the model; nil if none was chosen.
  public private(set) var bundle: URL?
  /// The share of a bundle's bytes that are copied; nil if none is being copied.
  public private(set) var copied: Double?

  private let files: AppFiles
  private let computer = Computer()

  /// `limitMB` is the most memory that a training may use on this device. Throws if the app's own files cannot be read.
  public init(_ files: AppFiles, limitMB: Double) throws {
    self.files = files
    try SafeFiles.recover(files.copiedBundle)
    try SafeFiles.recover(files.run)
    budget = try Budget(files, computer, board, limitMB: limitMB)
    examples = Examples(files, board)
    trainings = try Trainings(files, computer, budget, board)
    chat = Chat(files, computer, trainings, board)
    bundle = files.bundle
  }

  /// Called when a window opens.
  public func look() async {
    await examples.look()
    if !trainings.isOn { await budget.ask() }
  }

  /// Copies a folder to the app's storage. If it is a bundle, it becomes the current one.
  public func copyBundle(from folder: URL) async {
    if copied != nil { return }
    copied = 0
    defer { copied = nil }
    do {
      try refuseWhileTraining()
      let made = try await copy(folder, beside: files.copiedBundle)
      // Nothing computes meanwhile: the replaced bundle must not be in use.
      try await computer.task { [self] in
        _ = try await TrainingBundle(at: made)
        try await use(made)
      }
      board.say("")
      await examples.look()
      await budget.forget()
    } catch {
      board.say(error)
    }
  }

  /// Writes the adapter's files, which PEFT reads, to a folder.
  public func export(to folder: URL) {
    do {
      guard let adapter = trainings.adapter else { throw AppError("There is no adapter yet. Train first.") }
      for name in ["adapter_config.json", "adapter_model.safetensors"] {
        let target = folder.appendingPathComponent(name)
        try SafeFiles.delete(target)
        try FileManager.default.copyItem(at: adapter.appendingPathComponent(name), to: target)
      }
      board.say("Adapter exported.")
    } catch {
      board.say(error)
    }
  }

  private func use(_ made: URL) throws {
    try refuseWhileTraining()
    let isSame = BundleCopy.isSame(made, files.copiedBundle)
    try SafeFiles.replace(files.copiedBundle)
    if !isSame { try trainings.forget() }
    bundle = files.bundle
  }

  private func copy(_ folder: URL, beside target: URL) async throws -> URL {
    let (shares, send) = AsyncStream.makeStream(of: Double.self)
    let copying = Task.detached {
      defer { send.finish() }
      return try BundleCopy.copy(folder, beside: target) { send.yield($0) }
    }
    for await share in shares { copied = share }
    return try await copying.value
  }

  private func refuseWhileTraining() throws {
    if trainings.isOn { throw AppError("Stop the training first.") }
  }
}
