import XCTest

@testable import MobileFT

/// From typed sentences to an answer that was learned.
final class FlowTests: XCTestCase {
  func testTypedSentencesChangeTheAnswer() async throws {
    let scratch = try scratch()
    let rows = scratch["rows.jsonl"], tokens = scratch["tokens"], out = scratch["out"]
    var options = Scratch.options(steps: 60)
    do {
      let dataset = try await Dataset(rows: rows, bundle: Scratch.bundle)
      XCTAssertEqual(dataset.count, 0)
      try await dataset.add(Scratch.taught)
    }
    let dataset = try await Dataset(rows: rows, bundle: Scratch.bundle)  // it is still there
    XCTAssertEqual(dataset.count, 1)
    try await dataset.add(prompt: "hello", completion: "hi")
    try await dataset.add(text: "hello hi")
    try await dataset.add(json: #"{"text": "unread", "weight": 0}"#)
    let written = try await dataset.writeTokens(to: tokens, options: options)
    XCTAssertEqual(written.rows, 4)
    XCTAssertEqual(written.dropped, 1)
    XCTAssertEqual(written.sequences, 1)
    XCTAssertGreaterThan(written.targetTokens, 8)
    XCTAssertGreaterThan(written.tokens, written.targetTokens)

    let bundle = try await TrainingBundle(at: Scratch.bundle)
    XCTAssertEqual(bundle.vocabularySize, 250)
    XCTAssertEqual(bundle.maximumSequenceLength, 64)
    let unlimited = try await bundle.plan(options)
    XCTAssertNil(unlimited.budgetMB)
    options.budget = "\(Int(unlimited.plannedMB) + 50)MB"  // this process grows meanwhile
    let plan = try await bundle.plan(options)
    XCTAssertLessThanOrEqual(plan.plannedMB, plan.budgetMB ?? 0)
    XCTAssertLessThan(plan.anonymousMB, plan.plannedMB)
    XCTAssertEqual(plan.componentsMB.values.reduce(0, +), plan.plannedMB, accuracy: 1e-6 * plan.plannedMB)
    XCTAssertGreaterThan(plan.stepSeconds, 0)
    let before = try await bundle.evaluate(tokens: tokens)
    XCTAssertGreaterThan(before.targets, 8)

    let generator = try await Generator(bundle: Scratch.bundle)
    func answer(_ adapter: URL?) async throws -> String {
      try await generator.answer(Scratch.question, adapter: adapter, options: Scratch.answers).text()
    }
    let untaught = try await answer(nil)
    XCTAssertNotEqual(untaught, "hi")
    let learned = try await losses(Trainer(scratch.files(tokens), options: options))
    XCTAssertEqual(learned.count, 60)
    for _ in 0..<2 {
      let taught = try await answer(out), again = try await answer(nil)
      XCTAssertEqual(taught, "hi")
      XCTAssertEqual(again, untaught)
    }
    let chat = #"{"messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]}"#
    let same = try await generator.answer(json: chat, adapter: out, options: Scratch.answers).text()
    XCTAssertEqual(same, "hi")
    let after = try await bundle.evaluate(tokens: tokens, adapter: out)
    XCTAssertLessThan(after.mean, before.mean)
  }

  func testTenLossesEqualThoseOfTheProgram() async throws {
    let scratch = try scratch()
    let tokens = try await scratch.tokens()
    let found = try await losses(Trainer(scratch.files(tokens), options: Scratch.options(steps: 10)))
    let printed = try Scratch.output(
      of: Scratch.program,
      ["train", Scratch.bundle.filePath, "--data", tokens.filePath, "--out", scratch["other"].filePath,
       "--steps", "10", "--seq-len", "64", "--lr", "1e-2"])
    var expected: [Double] = []
    for line in printed.split(separator: "\n") {
      if case .step(let step) = try TrainingEvent(json: String(line)) { expected.append(step.loss) }
    }
    XCTAssertEqual(found.count, 10)
    XCTAssertEqual(found.map(\.bitPattern), expected.map(\.bitPattern))
  }

  func testEventsOfATraining() async throws {
    let scratch = try scratch()
    let tokens = try await scratch.tokens()
    var options = Scratch.options(steps: 4), files = scratch.files(tokens)
    options.evaluateEvery = 2
    files.validation = tokens
    var plans = 0, steps: [Int] = [], best: [Bool] = [], saved: [Int] = [], summaries = 0
    for try await event in try await Trainer(files, options: options) {
      switch event {
      case .plan: plans += 1
      case .step(let step):
        steps.append(step.step)
        XCTAssertGreaterThan(step.memoryMB, 1)
        XCTAssertGreaterThan(step.tokens, 8)
      case .evaluation(let evaluation): best.append(evaluation.best)
      case .saved(let step): saved.append(step)
      case .done(let summary):
        summaries += 1
        XCTAssertEqual(summary.steps, 4)
        XCTAssertEqual(summary.losses.count, 4)
        XCTAssertGreaterThan(summary.peakMemoryMB, 1)
      default: XCTFail("\(event)")
      }
    }
    XCTAssertEqual([plans, summaries], [1, 1])
    XCTAssertEqual(steps, [1, 2, 3, 4])
    XCTAssertEqual(best, [true, true])
    XCTAssertEqual(saved.last, 4)
  }

  func testALearner() async throws {
    let scratch = try scratch()
    let rows = scratch["rows.jsonl"]
    let lines = (0..<40).map { #"{"id": "\#($0)", "messages": [{"role": "user", "content": "hello \#($0 % 10)"}, {"role": "assistant", "content": "hi"}]}"# }
    try lines.joined(separator: "\n").write(to: rows, atomically: true, encoding: .utf8)
    let learner = try await Learner(bundle: Scratch.bundle, folder: scratch["learner"])
    var options = LearnOptions()
    try options.set("seq_len", to: "64")
    try options.set("lr", to: "1e-2")
    try options.set("epochs", to: "3")
    try options.set("general_bound", to: "10")
    var verdicts: [Verdict] = [], states: [LearnerState] = [], steps = 0
    for try await event in learner.learn(rows: rows, options: options) {
      switch event {
      case .training(.step): steps += 1
      case .training: break
      case .verdict(let verdict): verdicts.append(verdict)
      case .done(let state): states.append(state)
      }
    }
    XCTAssertGreaterThan(steps, 0)
    XCTAssertEqual(verdicts.count, 1)
    XCTAssertTrue(verdicts[0].adopted, verdicts[0].why)
    XCTAssertEqual(states.map(\.version), [1])
    let state = try await learner.state()
    XCTAssertEqual(state.nights.count, 1)
    XCTAssertEqual(state.rows, 40)
    XCTAssertNotNil(state.adapter)

    let generator = try await Generator(bundle: Scratch.bundle)
    let answer = try await generator.answer(
      Scratch.question, adapter: state.adapter, options: Scratch.answers
    ).text()
    XCTAssertEqual(answer, "hi")

    try await learner.rollBack(to: 0)
    let rolledBack = try await learner.state()
    XCTAssertEqual(rolledBack.version, 0)
    XCTAssertNil(rolledBack.adapter)
    for try await event in learner.forget(["3"]) {
      if case .done(let state) = event { XCTAssertEqual(state.rows, 39) }
    }
  }
}
