import CMobileFT
import Foundation

/// Learns from new rows night after night, and adopts a version only if it is better. Each call leaves the folder as it
/// was or as it is to be, whenever the process ends. One night at a time: a second one throws ``MobileFTError/busy(_:)``.
public final class Learner: Sendable {
  private let handle: Handle

  /// `folder` may be missing; the first night makes it.
  public init(bundle: URL, folder: URL) async throws {
    handle = try await blocking {
      try Handle(
        open: { mft_learner_open(bundle.filePath, folder.filePath, $0) }, close: { mft_learner_close($0) })
    }
  }

  /// A night: trains on the rows of a .jsonl file that are new, and on older ones, while it is iterated over. If the task
  /// is cancelled, the night ends after the current step, the folder is as it was, and ``MobileFTError/stopped(_:)`` is
  /// thrown.
  public func learn(rows: URL, options: LearnOptions = LearnOptions()) -> Night {
    Night { [handle] in
      Call(interrupt: { mft_learner_cancel(handle.pointer) }) { take in
        let given = try OptionsHandle(options)
        try Reports { take(try LearnerEvent(json: $0)) }
          .during { mft_learner_learn(handle.pointer, rows.filePath, given.pointer, $0, $1) }
      }
    }
  }

  /// Forgets rows: removes them, and repeats the nights since the last version that was not trained on them.
  public func forget(_ ids: [String]) -> Night {
    Night { [handle] in
      Call(interrupt: { mft_learner_cancel(handle.pointer) }) { take in
        try withCStrings("id", ids) { texts in
          try Reports { take(try LearnerEvent(json: $0)) }
            .during { mft_learner_forget(handle.pointer, texts, texts.count, $0, $1) }
        }
      }
    }
  }

  /// Makes an earlier version that is still kept the current one; 0 is the base model.
  public func rollBack(to version: Int) async throws {
    try await blocking { [handle] in try check(mft_learner_roll_back(handle.pointer, Int64(version))) }
  }

  /// The folder's current version, and what the nights so far decided.
  public func state() async throws -> LearnerState {
    try await blocking { [handle] in
      var state: LearnerState?
      try Reports { json in
        state = try decoded(LearnerState.self, json)
        return true
      }.during { mft_learner_state(handle.pointer, $0, $1) }
      guard let state else { throw MobileFTError.failed("the runtime reported no state") }
      return state
    }
  }

  /// The events of a night.
  public struct Night: AsyncSequence, Sendable {
    let start: @Sendable () -> Call<LearnerEvent>

    public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(call: start()) }

    public struct AsyncIterator: AsyncIteratorProtocol {
      let call: Call<LearnerEvent>

      public mutating func next() async throws -> LearnerEvent? { try await call.next() }
    }
  }
}
