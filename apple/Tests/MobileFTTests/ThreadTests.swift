import XCTest

@testable import MobileFT

/// Several tasks at a time.
final class ThreadTests: XCTestCase {
  func testTwoModelsInTwoTasks() async throws {
    let scratch = try scratch()
    let tokens = try await scratch.tokens()
    let alone = try await losses(Trainer(scratch.files(tokens, out: "alone"), options: Scratch.options(steps: 20)))
    async let first = losses(Trainer(scratch.files(tokens, out: "a"), options: Scratch.options(steps: 20)))
    async let second = losses(Trainer(scratch.files(tokens, out: "b"), options: Scratch.options(steps: 20)))
    let both = try await [first, second]
    XCTAssertEqual(both, [alone, alone])
  }

  func testTwoCallsOnOneObject() async throws {
    let scratch = try scratch()
    let trainer = try await Trainer(scratch.files(scratch.tokens()), options: Scratch.options(steps: 2000))
    var events = trainer.makeAsyncIterator()
    _ = try await events.next()  // the run has begun
    for _ in 0..<3 {
      let busy = await error { _ = try await losses(trainer) }
      guard case .busy(let message) = busy else { return XCTFail("\(String(describing: busy))") }
      XCTAssertFalse(message.isEmpty)
    }
    var steps = 0  // which goes on
    while let event = try await events.next() {
      if case .step = event { steps += 1 }
    }
    XCTAssertEqual(steps, 2000)
  }

  func testManyObjects() async throws {
    let scratch = try scratch()
    let tokens = try await scratch.tokens()
    func cycle() async throws {
      _ = try await TrainingBundle(at: Scratch.bundle)
      _ = try await Generator(bundle: Scratch.bundle)
      _ = try await Dataset(rows: scratch["rows.jsonl"], bundle: Scratch.bundle)
      _ = try await Trainer(scratch.files(tokens), options: Scratch.options(steps: 1))
    }
    for _ in 0..<50 { try await cycle() }
    let before = ProcessMemory.now().current
    for _ in 0..<1000 { try await cycle() }
    let after = ProcessMemory.now().current
    XCTAssertLessThan(after - before, 4_000_000)
  }
}
