import Foundation
import XCTest

@testable import MobileFT

/// The small bundle, and files to write.
struct Scratch {
  static let bundle = URL(fileURLWithPath: ProcessInfo.processInfo.environment["MFT_TEST_BUNDLE"]!, isDirectory: true)
  static let program = URL(fileURLWithPath: ProcessInfo.processInfo.environment["MFT_RUN"]!)
  static let nowhere = URL(fileURLWithPath: "/no/such")
  static let question: [Message] = [.user("hello")]
  static let taught: [Message] = [.user("hello"), .assistant("hi")]

  let folder = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString, isDirectory: true)

  init() throws { try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true) }

  func remove() { try? FileManager.default.removeItem(at: folder) }

  subscript(name: String) -> URL { folder.appendingPathComponent(name) }

  static func options(steps: Int) -> TrainOptions {
    var options = TrainOptions()
    options.steps = steps
    options.sequenceLength = 64
    options.learningRate = 1e-2
    return options
  }

  static var answers: GenerateOptions {
    var options = GenerateOptions()
    options.maxTokens = 20
    return options
  }

  /// Tokens of a few rows.
  func tokens() async throws -> URL {
    let tokens = self["tokens"]
    let dataset = try await Dataset(rows: self["rows.jsonl"], bundle: Self.bundle)
    try await dataset.add(Self.taught)
    try await dataset.add(text: "hello hello, this is a longer text")
    try await dataset.add(prompt: "1 + 1", completion: "2")
    try await dataset.writeTokens(to: tokens, options: Self.options(steps: 1))
    return tokens
  }

  func files(_ tokens: URL, out: String = "out") -> Trainer.Files {
    Trainer.Files(bundle: Self.bundle, data: tokens, out: self[out])
  }

  /// What a program prints.
  static func output(of program: URL, _ arguments: [String]) throws -> String {
    let process = Process(), pipe = Pipe()
    process.executableURL = program
    process.arguments = arguments
    process.standardOutput = pipe
    try process.run()
    let printed = pipe.fileHandleForReading.readDataToEndOfFile()
    process.waitUntilExit()
    XCTAssertEqual(process.terminationStatus, 0)
    return String(decoding: printed, as: UTF8.self)
  }
}

extension XCTestCase {
  /// A folder that is removed after the test.
  func scratch() throws -> Scratch {
    let scratch = try Scratch()
    addTeardownBlock { scratch.remove() }
    return scratch
  }
}

/// The losses of a training's steps.
func losses(_ trainer: Trainer) async throws -> [Double] {
  var losses: [Double] = []
  for try await event in trainer {
    if case .step(let step) = event { losses.append(step.loss) }
  }
  return losses
}

/// The error that `body` throws.
func error(
  _ body: () async throws -> Void, file: StaticString = #filePath, line: UInt = #line
) async -> MobileFTError? {
  do {
    try await body()
    XCTFail("no error", file: file, line: line)
  } catch let error as MobileFTError {
    return error
  } catch {
    XCTFail("another error: \(error)", file: file, line: line)
  }
  return nil
}
