// What `Sources/MobileFT/TunedLanguageModel.swift` uses of Apple's FoundationModels, version 2 (iOS 27, macOS 27), as its
// documentation declares it. `check_types.sh` checks that file against this one, since Linux lacks the framework. Nothing
// here computes.

public protocol LanguageModel: Sendable {
  associatedtype Executor: LanguageModelExecutor where Executor.Model == Self
  var capabilities: LanguageModelCapabilities { get }
  var executorConfiguration: Executor.Configuration { get }
}

public protocol LanguageModelExecutor: Sendable {
  associatedtype Configuration: Hashable, Sendable
  associatedtype Model: LanguageModel
  init(configuration: Configuration) throws
  func respond(
    to request: LanguageModelExecutorGenerationRequest, model: Model,
    streamingInto channel: LanguageModelExecutorGenerationChannel
  ) async throws
}

public struct LanguageModelCapabilities: Sendable {
  public struct Capability: Sendable {}
  public init(_ capabilities: [Capability]) {}
}

public struct LanguageModelExecutorGenerationRequest: Sendable {
  public var transcript: Transcript { fatalError() }
  public var generationOptions: GenerationOptions { fatalError() }
}

public struct GenerationOptions: Sendable {
  public struct SamplingMode: Sendable, Equatable {
    public static var greedy: SamplingMode { fatalError() }
  }
  public var samplingMode: SamplingMode? { fatalError() }
  public var temperature: Double? { fatalError() }
  public var maximumResponseTokens: Int? { fatalError() }
}

public struct Transcript: Sendable, RandomAccessCollection {
  public var startIndex: Int { 0 }
  public var endIndex: Int { 0 }
  public subscript(position: Int) -> Entry { fatalError() }

  public enum Entry: Sendable {
    case instructions(Instructions)
    case prompt(Prompt)
    case response(Response)
    case other
  }
  public enum Segment: Sendable {
    case text(TextSegment)
    case other
  }
  public struct TextSegment: Sendable { public var content: String { fatalError() } }
  public struct Instructions: Sendable { public var segments: [Segment] { fatalError() } }
  public struct Prompt: Sendable { public var segments: [Segment] { fatalError() } }
  public struct Response: Sendable { public var segments: [Segment] { fatalError() } }
}

public enum LanguageModelError: Error {
  case unsupportedTranscriptContent(UnsupportedTranscriptContent)
  public struct UnsupportedTranscriptContent: Sendable {
    public init(unsupportedContent: [Transcript.Entry], debugDescription: String) {}
  }
}

public struct LanguageModelExecutorGenerationChannel: Sendable {
  public struct Event: Sendable {
    public static func response(entryID: String? = nil, action: Response.Action) -> Event { Event() }
  }
  public struct Response: Sendable {
    public struct Action: Sendable {
      public static func appendText(_ text: String, tokenCount: Int) -> Action { Action() }
    }
  }
  public func send(_ event: Event) async {}
}
