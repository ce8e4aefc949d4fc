import CMobileFT
import Foundation

/// Answers with the model of a bundle and an adapter. The four adapters that were used last stay in memory; one is read
/// again if its files have changed, so a training's latest adapter is used. If a chat goes on, only what is new is
/// computed. One answer at a time: a second one throws ``MobileFTError/busy(_:)``, but waits for one that was left.
public final class Generator: Sendable {
  private let handle: Handle
  private let turn = Turn()

  public init(bundle folder: URL) async throws {
    handle = try await blocking {
      try Handle(open: { mft_bundle_open(folder.filePath, $0) }, close: { mft_bundle_close($0) })
    }
  }

  /// An answer, as the sequence of its pieces. It is computed while it is iterated over. If the task is cancelled or
  /// nobody asks for the next piece any more, the answer ends.
  public struct Answer: AsyncSequence, Sendable {
    let start: @Sendable () -> Call<String>

    public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(call: start()) }

    /// The whole text.
    public func text() async throws -> String {
      var text = ""
      for try await piece in self { text += piece }
      return text
    }

    public struct AsyncIterator: AsyncIteratorProtocol {
      let call: Call<String>

      /// Throws CancellationError if the task was cancelled before the answer ended.
      public mutating func next() async throws -> String? {
        let piece = try await call.next()
        if piece == nil { try Task.checkCancellation() }
        return piece
      }
    }
  }

  /// Answers the last of the messages with the model's chat template, up to the model's end tokens, `maxTokens` or the
  /// bundle's maximum length. The answer does not tell which of them ended it.
  public func answer(
    _ messages: [Message], adapter: URL? = nil, options: GenerateOptions = GenerateOptions()
  ) -> Answer {
    answer(options) { [handle] given, onText, userData in
      try withCMessages(messages) { first, count in
        mft_chat(handle.pointer, adapter?.filePath, first, count, given, onText, userData)
      }
    }
  }

  /// The same for a chat as JSON: `{"messages": [...]}`, optionally with "tools", as in rows of training data.
  public func answer(json: String, adapter: URL? = nil, options: GenerateOptions = GenerateOptions()) -> Answer {
    answer(options) { [handle] given, onText, userData in
      try mft_chat_json(handle.pointer, adapter?.filePath, withoutNul("json", json), given, onText, userData)
    }
  }

  private typealias OnText = @convention(c) (UnsafePointer<CChar>?, UnsafeMutableRawPointer?) -> Int32

  private func answer(
    _ options: GenerateOptions,
    _ chat: @escaping @Sendable (OpaquePointer, OnText, UnsafeMutableRawPointer) throws -> mft_status
  ) -> Answer {
    Answer { [handle, turn] in
      Call(interrupt: { mft_bundle_cancel(handle.pointer) }, turn: turn) { take in
        let given = try OptionsHandle(options)
        try Reports(take).during { try chat(given.pointer, $0, $1) }
      }
    }
  }
}
