import XCTest

@testable import MobileFT

/// Calls that end early.
final class CancelTests: XCTestCase {
  func testACancelledTaskLeavesACheckpointToResumeFrom() async throws {
    let scratch = try scratch()
    let tokens = try await scratch.tokens(), files = scratch.files(tokens)
    let options = Scratch.options(steps: 1000)
    let task = Task { () -> ([Double], Bool, MobileFTError?) in
      var losses: [Double] = [], saved = false
      do {
        for try await event in try await Trainer(files, options: options) {
          if case .step(let step) = event {
            losses.append(step.loss)
            if losses.count == 5 { withUnsafeCurrentTask { $0?.cancel() } }
          }
          if case .saved = event { saved = true }
        }
      } catch let error as MobileFTError {
        return (losses, saved, error)
      }
      return (losses, saved, nil)
    }
    let (before, saved, stopped) = try await task.value
    guard case .stopped(let reason) = stopped else { return XCTFail("\(String(describing: stopped))") }
    XCTAssertFalse(reason.isEmpty)
    XCTAssertTrue(saved)
    XCTAssertTrue(FileManager.default.fileExists(atPath: scratch["out/adapter_model.safetensors"].filePath))
    XCTAssertTrue((5..<1000).contains(before.count))

    // As much as a run that was not interrupted.
    var resumed = files
    resumed.resume = true
    let trainer = try await Trainer(resumed, options: TrainOptions())
    var all = before
    for try await event in trainer {
      guard case .step(let step) = event else { continue }
      XCTAssertEqual(step.step, all.count + 1)
      all.append(step.loss)
      if all.count == before.count + 5 { trainer.cancel(); break }
    }
    let whole = try await Trainer(scratch.files(tokens, out: "whole"), options: options)
    var expected: [Double] = []
    for try await event in whole {
      if case .step(let step) = event { expected.append(step.loss) }
      if expected.count == all.count { break }
    }
    XCTAssertEqual(all.map(\.bitPattern), expected.map(\.bitPattern))
  }

  func testCancelFromAnotherTask() async throws {
    let scratch = try scratch()
    let trainer = try await Trainer(scratch.files(scratch.tokens()), options: Scratch.options(steps: 100_000))
    let task = Task { try await losses(trainer) }
    try await Task.sleep(nanoseconds: 100_000_000)
    trainer.cancel()
    let found = await error { _ = try await task.value }
    guard case .stopped = found else { return XCTFail("\(String(describing: found))") }
  }

  func testAnAnswerThatIsCancelledEnds() async throws {
    let generator = try await Generator(bundle: Scratch.bundle)
    var options = GenerateOptions()
    options.maxTokens = 50
    let answer = generator.answer([.user("a")], options: options)
    let task = Task { () -> Int in
      var pieces = 0
      for try await _ in answer {
        pieces += 1
        withUnsafeCurrentTask { $0?.cancel() }
      }
      return pieces
    }
    do {
      _ = try await task.value
      XCTFail("the answer went on")
    } catch is CancellationError {
    }
    let text = try await generator.answer([.user("a")], options: options).text()
    XCTAssertFalse(text.isEmpty)
  }

  func testAnAnswerThatNobodyReadsEnds() async throws {
    let generator = try await Generator(bundle: Scratch.bundle)
    var options = GenerateOptions()
    options.maxTokens = 50
    for try await _ in generator.answer([.user("a")], options: options) { break }
    let text = try await generator.answer([.user("a")], options: options).text()
    XCTAssertFalse(text.isEmpty)
  }

  func testACancelledNightLeavesTheFolderAsItWas() async throws {
    let scratch = try scratch()
    let rows = scratch["rows.jsonl"]
    try (0..<40).map { #"{"id": "\#($0)", "text": "hello \#($0)"}"# }.joined(separator: "\n")
      .write(to: rows, atomically: true, encoding: .utf8)
    let learner = try await Learner(bundle: Scratch.bundle, folder: scratch["learner"])
    var options = LearnOptions()
    try options.set("seq_len", to: "64")
    try options.set("steps", to: "100000")
    let night = learner.learn(rows: rows, options: options)
    let task = Task {
      for try await event in night {
        if case .training(.step) = event { withUnsafeCurrentTask { $0?.cancel() } }
      }
    }
    let found = await error { try await task.value }
    guard case .stopped = found else { return XCTFail("\(String(describing: found))") }
    let state = try await learner.state()
    XCTAssertEqual(state.nights.count, 0)
  }
}
