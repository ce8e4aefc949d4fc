// Version 2 of the framework, of iOS 27 and macOS 27, is the first one that takes models of others.
#if canImport(FoundationModels, _version: 2)
import Foundation
import FoundationModels

/// A fine-tuned model for Apple's `LanguageModelSession`, so that an app changes one line to answer with it:
///
/// ```swift
/// let session = LanguageModelSession(model: try await TunedLanguageModel(bundle: bundle, adapter: adapter))
/// let answer = try await session.respond(to: "When do you close?")
/// ```
///
/// It takes text. Tools, guided generation and images are not among its capabilities, so the session refuses them. It
/// samples by temperature, or greedily; another sampling mode is an error.
@available(iOS 27.0, macOS 27.0, visionOS 27.0, *)
public struct TunedLanguageModel: LanguageModel {
  let generator: Generator
  let configuration: Executor.Configuration

  /// Opens the bundle. The adapter is read at each answer; nil: the base model.
  public init(bundle: URL, adapter: URL? = nil) async throws {
    generator = try await Generator(bundle: bundle)
    configuration = Executor.Configuration(bundle: bundle, adapter: adapter)
  }

  public var capabilities: LanguageModelCapabilities { LanguageModelCapabilities([]) }
  public var executorConfiguration: Executor.Configuration { configuration }

  public struct Executor: LanguageModelExecutor {
    public typealias Model = TunedLanguageModel

    public struct Configuration: Hashable, Sendable {
      let bundle: URL
      let adapter: URL?
    }

    let configuration: Configuration

    public init(configuration: Configuration) { self.configuration = configuration }

    public func respond(
      to request: LanguageModelExecutorGenerationRequest, model: TunedLanguageModel,
      streamingInto channel: LanguageModelExecutorGenerationChannel
    ) async throws {
      let answer = model.generator.answer(
        try request.transcript.map(message), adapter: configuration.adapter,
        options: try options(request.generationOptions))
      for try await piece in answer { await channel.send(.response(action: .appendText(piece, tokenCount: 1))) }
    }

    private func message(_ entry: Transcript.Entry) throws -> Message {
      switch entry {
      case .instructions(let instructions): .system(try text(instructions.segments, of: entry))
      case .prompt(let prompt): .user(try text(prompt.segments, of: entry))
      case .response(let response): .assistant(try text(response.segments, of: entry))
      default: throw unsupported(entry)
      }
    }

    private func text(_ segments: [Transcript.Segment], of entry: Transcript.Entry) throws -> String {
      try segments.map { segment in
        guard case .text(let text) = segment else { throw unsupported(entry) }
        return text.content
      }.joined(separator: "\n")
    }

    private func unsupported(_ entry: Transcript.Entry) -> LanguageModelError {
      .unsupportedTranscriptContent(
        .init(unsupportedContent: [entry], debugDescription: "This model takes instructions, prompts and answers as text."))
    }

    private func options(_ asked: GenerationOptions) throws -> GenerateOptions {
      var options = GenerateOptions()
      options.maxTokens = asked.maximumResponseTokens
      options.temperature = asked.temperature
      if let mode = asked.samplingMode {
        guard mode == .greedy else { throw MobileFTError.argument("samplingMode: must be greedy, or not set") }
        options.temperature = 0
      }
      return options
    }
  }
}
#endif
