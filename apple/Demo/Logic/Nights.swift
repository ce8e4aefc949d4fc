import Foundation
import MobileFT

/// What the app shows of its learner without opening a model.
struct Nights: Sendable {
  private struct Found: Codable {
    /// Examples that the last night knew.
    var rows = 0
    /// What it decided, as a line for the user.
    var status = ""
    /// The path of the current version's adapter within the learner's folder; "" for the base model.
    var adapter = ""
  }

  private static let minutes = 5.0  // the system ends a night's task after some minutes, and such a night is lost

  private let files: AppFiles
  private var found: Found

  init(_ files: AppFiles) throws {
    self.files = files
    found = try SafeFiles.read(Found.self, from: files.nights) ?? Found()
  }

  var rows: Int { found.rows }
  var status: String { found.status }

  var adapter: URL? {
    let folder = files.learner.appendingPathComponent(found.adapter, isDirectory: true)
    return !found.adapter.isEmpty && hasAdapter(folder) ? folder : nil
  }

  /// A night on all examples.
  func work(
    bundle: URL, budgetMB: Int, done: @escaping @Sendable (LearnerState) async throws -> Void
  ) async throws -> NightWork {
    var options = LearnOptions()
    options.budget = "\(budgetMB)MB"
    options.minutes = Self.minutes
    try options.set("seq_len", to: String(try await TrainingRun.sequenceLength(bundle)))
    return NightWork(bundle: bundle, folder: files.learner, rows: files.rows, options: options, done: done)
  }

  mutating func keep(_ state: LearnerState, rows: Int) throws {
    let last = state.nights.last
    let decision = last?.adopted == true ? "was adopted" : "was not adopted"
    found.rows = rows
    found.status = "Night \(state.nights.count) \(decision): \(last?.why ?? "")."
    found.adapter = state.adapter.map { "versions/\($0.lastPathComponent)" } ?? ""
    try SafeFiles.write(found, to: files.nights)
  }

  /// Forgets everything, because another model cannot use it.
  mutating func clear() throws {
    try SafeFiles.delete(files.nights)
    try SafeFiles.delete(files.learner)
    found = Found()
  }
}
