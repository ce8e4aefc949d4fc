import XCTest

@testable import MobileFT

/// Every error says what is wrong, and names it.
final class ErrorTests: XCTestCase {
  func testFilesThatAreMissing() async throws {
    let scratch = try scratch()
    let missing = [
      await error { _ = try await TrainingBundle(at: Scratch.nowhere) },
      await error { _ = try await Generator(bundle: Scratch.nowhere) },
      await error { _ = try await Dataset(rows: scratch["rows.jsonl"], bundle: Scratch.nowhere) },
      await error { _ = try await Learner(bundle: Scratch.nowhere, folder: scratch["learner"]) },
      await error {
        _ = try await Trainer(Trainer.Files(bundle: Scratch.nowhere, data: scratch["tokens"], out: scratch["out"]))
      },
    ]
    for found in missing {
      guard case .failed(let message) = found else { return XCTFail("\(String(describing: found))") }
      XCTAssertTrue(message.contains("/no/such"), message)
    }
    let noTokens = await error {
      _ = try await losses(Trainer(scratch.files(scratch["absent"]), options: Scratch.options(steps: 1)))
    }
    XCTAssertTrue(noTokens?.message.contains("absent") ?? false, "\(String(describing: noTokens))")
    let generator = try await Generator(bundle: Scratch.bundle)
    let noAdapter = await error {
      _ = try await generator.answer(Scratch.question, adapter: scratch["absent"], options: Scratch.answers).text()
    }
    XCTAssertTrue(noAdapter?.message.contains("absent") ?? false, "\(String(describing: noAdapter))")
  }

  func testOptions() async throws {
    var options = TrainOptions()
    XCTAssertEqual(options.value(of: "seq_len"), "256")
    XCTAssertNil(options.value(of: "no_such"))
    XCTAssertThrowsError(try options.set("no_such", to: "1")) {
      guard case .argument(let message) = $0 as? MobileFTError else { return XCTFail("\($0)") }
      XCTAssertTrue(message.contains("no_such"), message)
    }
    XCTAssertThrowsError(try options.set("lr", to: "fast")) {
      guard case .failed(let message) = $0 as? MobileFTError else { return XCTFail("\($0)") }
      XCTAssertTrue(message.contains("fast"), message)
      XCTAssertEqual($0.localizedDescription, message)
    }
    try options.set("lr", to: "1e-3")
    XCTAssertEqual(options.learningRate, 1e-3)
    options.schedule = "sideways"  // properties are checked by the call
    let bundle = try await TrainingBundle(at: Scratch.bundle)
    let wrong = await error { _ = try await bundle.plan(options) }
    XCTAssertTrue(wrong?.message.contains("sideways") ?? false, "\(String(describing: wrong))")
  }

  func testRowsThatAreWrong() async throws {
    let scratch = try scratch()
    let dataset = try await Dataset(rows: scratch["rows.jsonl"], bundle: Scratch.bundle)
    for row in ["{", #"{"other": 1}"#] {
      let found = await error { try await dataset.add(json: row) }
      XCTAssertFalse(found?.message.isEmpty ?? true)
    }
    XCTAssertEqual(dataset.count, 0)
    let nothing = await error { try await dataset.writeTokens(to: scratch["tokens"]) }
    XCTAssertTrue(nothing?.message.contains("rows.jsonl") ?? false, "\(String(describing: nothing))")
  }

  func testTextsWithNul() async throws {
    let scratch = try scratch()
    let dataset = try await Dataset(rows: scratch["rows.jsonl"], bundle: Scratch.bundle)
    let generator = try await Generator(bundle: Scratch.bundle)
    var options = TrainOptions()
    let found = [
      ("text", await error { try await dataset.add(text: "a\0b") }),
      ("completion", await error { try await dataset.add(prompt: "a", completion: "b\0") }),
      ("json", await error { try await dataset.add(json: "{\"text\": \"a\"}\0") }),
      ("message", await error { try await dataset.add([.user("a\0b"), .assistant("c")]) }),
      ("message", await error { _ = try await generator.answer([.user("a\0b")]).text() }),
      ("json", await error { _ = try await generator.answer(json: "\0").text() }),
      ("schedule", await error { try options.set("schedule", to: "full\0") }),
      ("publicKey", await error { try TrainingBundle.trust(publicKey: "\0") }),
    ]
    for (name, error) in found {
      XCTAssertEqual(error, .argument("\(name): has a NUL character, which the runtime does not support"))
    }
    XCTAssertEqual(dataset.count, 0)
    XCTAssertNil(options.value(of: "lr\0"))
  }

  func testABudgetThatIsTooSmall() async throws {
    let scratch = try scratch()
    let tokens = try await scratch.tokens()
    var options = Scratch.options(steps: 1)
    options.budget = "1MB"
    let small = await error { [options] in _ = try await losses(Trainer(scratch.files(tokens), options: options)) }
    XCTAssertTrue(small?.message.contains("budget") ?? false, "\(String(describing: small))")
  }

  func testATrainingIsIteratedOverOnce() async throws {
    let scratch = try scratch()
    let trainer = try await Trainer(scratch.files(scratch.tokens()), options: Scratch.options(steps: 2))
    let first = try await losses(trainer)
    XCTAssertEqual(first.count, 2)
    let again = await error { _ = try await losses(trainer) }
    XCTAssertFalse(again?.message.isEmpty ?? true)
  }

  func testTrust() {
    XCTAssertThrowsError(try TrainingBundle.trust(publicKey: "no key")) {
      XCTAssertFalse(($0 as? MobileFTError)?.message.isEmpty ?? true)
    }
  }
}
