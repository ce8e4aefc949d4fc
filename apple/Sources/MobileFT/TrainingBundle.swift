import CMobileFT
import Foundation

/// A training bundle: a model with all that is needed to train and use it. Plans the memory of trainings and evaluates
/// adapters. One call at a time: a second one throws ``MobileFTError/busy(_:)``.
public final class TrainingBundle: Sendable {
  private let handle: Handle
  public let folder: URL

  /// Reads the description of the bundle. Weights are verified when they are first used.
  public init(at folder: URL) async throws {
    self.folder = folder
    handle = try await blocking {
      try Handle(open: { mft_bundle_open(folder.filePath, $0) }, close: { mft_bundle_close($0) })
    }
  }

  /// Makes this process accept only bundles that `mobile-ft export --sign` signed with this key, a public Ed25519 key in
  /// PEM. An app that downloads bundles calls it before anything else, with a key that is part of the app.
  public static func trust(publicKey: String) throws {
    try check(mft_trust_key(withoutNul("publicKey", publicKey)))
  }

  /// Token ids are from 0 to this size - 1.
  public var vocabularySize: Int { Int(mft_bundle_vocab_size(handle.pointer)) }
  /// The most tokens of a sequence, prompt and answer together.
  public var maximumSequenceLength: Int { Int(mft_bundle_max_seq_len(handle.pointer)) }

  /// Plans the memory of a training with these options.
  public func plan(_ options: TrainOptions = TrainOptions()) async throws -> MemoryPlan {
    try await blocking { [handle] in
      var plan: MemoryPlan?
      let given = try OptionsHandle(options)
      try Reports { json in
        plan = try decoded(MemoryPlan.self, json)
        return true
      }.during { mft_bundle_plan(handle.pointer, given.pointer, $0, $1) }
      guard let plan else { throw MobileFTError.failed("the runtime made no plan") }
      return plan
    }
  }

  /// The loss over a token file.
  public struct Loss: Sendable, Equatable {
    /// The mean over the targets.
    public let mean: Double
    /// The tokens that the loss counts.
    public let targets: Int
    public var perplexity: Double { exp(mean) }
  }

  /// Computes the loss over a token file, with the adapter in a folder or the base model. The folder is read at every
  /// call, so a training's latest adapter is used.
  public func evaluate(tokens: URL, adapter: URL? = nil) async throws -> Loss {
    try await blocking { [handle] in
      var result = mft_evaluation()
      try withCStrings("path", [adapter?.filePath, tokens.filePath]) {
        try check(mft_evaluate(handle.pointer, $0[0], $0[1], &result))
      }
      return Loss(mean: result.loss, targets: Int(result.targets))
    }
  }
}
