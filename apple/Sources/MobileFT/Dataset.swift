import CMobileFT
import Foundation

/// A .jsonl file of training rows, in the format that `mobile-ft train` reads. A row is on disk when its call returns.
/// If a call fails, for example because the disk is full, all earlier rows are kept. Rows that are not valid, or that the
/// model's chat template cannot render, are rejected when they are added.
public final class Dataset: Sendable {
  private let handle: Handle

  /// Opens the file, which may be missing, for the tokenizer and the chat template of a bundle.
  public init(rows file: URL, bundle folder: URL) async throws {
    handle = try await blocking {
      try Handle(
        open: { mft_dataset_open(folder.filePath, file.filePath, $0) }, close: { mft_dataset_close($0) })
    }
  }

  /// The number of rows.
  public var count: Int { Int(mft_dataset_rows(handle.pointer)) }

  /// Adds a chat, of which the assistant's messages are learned.
  public func add(_ messages: [Message]) async throws {
    try await blocking { [handle] in
      try withCMessages(messages) { try check(mft_dataset_add_chat(handle.pointer, $0, $1)) }
    }
  }

  /// Adds a prompt and its completion, which is learned. If the model has a chat template, they become two messages.
  public func add(prompt: String, completion: String) async throws {
    let prompt = try withoutNul("prompt", prompt), completion = try withoutNul("completion", completion)
    try await blocking { [handle] in try check(mft_dataset_add_pair(handle.pointer, prompt, completion)) }
  }

  /// Adds plain text, all of which is learned.
  public func add(text: String) async throws {
    let text = try withoutNul("text", text)
    try await blocking { [handle] in try check(mft_dataset_add_text(handle.pointer, text)) }
  }

  /// Adds any row as one JSON object, for example a preference, or an answer with a "label".
  public func add(json: String) async throws {
    let json = try withoutNul("json", json)
    try await blocking { [handle] in try check(mft_dataset_add_row(handle.pointer, json)) }
  }

  public struct Statistics: Sendable, Equatable {
    /// Rows that were read.
    public let rows: Int
    /// Sequences that were written, and their tokens.
    public let sequences: Int, tokens: Int
    /// Tokens that are learned.
    public let targetTokens: Int
    /// Rows that were too long and were cut at their end.
    public let truncated: Int
    /// Rows left out because no learned token remained, and because they cannot be used.
    public let dropped: Int, bad: Int
  }

  /// Tokenizes all rows, for a training with the same sequence length, seed and loss.
  @discardableResult
  public func writeTokens(to file: URL, options: TrainOptions = TrainOptions()) async throws -> Statistics {
    try await blocking { [handle] in
      var found = mft_dataset_stats()
      let given = try OptionsHandle(options)
      try check(mft_dataset_write_tokens(handle.pointer, given.pointer, file.filePath, &found))
      return Statistics(
        rows: Int(found.rows), sequences: Int(found.sequences), tokens: Int(found.tokens),
        targetTokens: Int(found.target_tokens), truncated: Int(found.truncated), dropped: Int(found.dropped),
        bad: Int(found.bad))
    }
  }
}
