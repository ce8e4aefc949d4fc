import CMobileFT
import Foundation

/// A training run, as the sequence of its events. It trains while it is iterated over, once:
///
/// ```swift
/// for try await event in try await Trainer(files, options: options) {
///   if case .step(let step) = event { print(step.loss) }
/// }
/// ```
///
/// If the task is cancelled, or ``cancel()`` is called, the run ends after the current step with a checkpoint. Its last
/// events still arrive, and then ``MobileFTError/stopped(_:)`` is thrown: the checkpoint is on disk by then. A training
/// with ``Files/resume`` continues from there.
public final class Trainer: AsyncSequence, Sendable {
  public typealias Element = TrainingEvent

  /// What a training reads and writes.
  public struct Files: Sendable {
    /// Folder of the bundle.
    public var bundle: URL
    /// Token file, written by ``Dataset/writeTokens(to:options:)``.
    public var data: URL
    /// Token file for validation.
    public var validation: URL?
    /// Folder of the adapter to start from; nil: the bundle's own.
    public var adapter: URL?
    /// Folder for the adapter and the checkpoint.
    public var out: URL
    /// Continues from the checkpoint in `out`. Options that are not set are read from it.
    public var resume = false

    public init(bundle: URL, data: URL, out: URL) {
      self.bundle = bundle
      self.data = data
      self.out = out
    }
  }

  private let handle: Handle

  /// Opens the bundle. Plan and training begin with the first event that is asked for.
  public init(_ files: Files, options: TrainOptions = TrainOptions()) async throws {
    handle = try await blocking {
      let given = try OptionsHandle(options)
      let paths = [files.bundle, files.data, files.validation, files.adapter, files.out].map { $0?.filePath }
      return try withCStrings("path", paths) { path in
        var described = mft_training_files(
          bundle: path[0], data: path[1], valid: path[2], adapter: path[3], out: path[4], resume: files.resume ? 1 : 0)
        return try Handle(
          open: { mft_training_open(&described, given.pointer, $0) }, close: { mft_training_close($0) })
      }
    }
  }

  /// Ends the run after the current step, with a checkpoint. At any time, from any thread.
  public func cancel() { mft_training_cancel(handle.pointer) }

  public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(call: run { try TrainingEvent(json: $0) }) }

  public struct AsyncIterator: AsyncIteratorProtocol {
    let call: Call<TrainingEvent>

    public mutating func next() async throws -> TrainingEvent? { try await call.next() }
  }

  /// The same events as the runtime reports them: each one a JSON object, of the fields in `docs/reference/events.md`.
  /// To be iterated over in place of the training itself.
  public var json: JSONEvents { JSONEvents(trainer: self) }

  public struct JSONEvents: AsyncSequence, Sendable {
    let trainer: Trainer

    public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(call: trainer.run { $0 }) }

    public struct AsyncIterator: AsyncIteratorProtocol {
      let call: Call<String>

      public mutating func next() async throws -> String? { try await call.next() }
    }
  }

  private func run<Event: Sendable>(_ read: @escaping @Sendable (String) throws -> Event) -> Call<Event> {
    Call(interrupt: { [handle] in mft_training_cancel(handle.pointer) }) { [handle] take in
      try Reports { take(try read($0)) }.during { mft_training_run(handle.pointer, $0, $1) }
    }
  }
}
