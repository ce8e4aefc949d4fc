import MobileFT
import XCTest

@testable import DemoLogic

/// The app without its views, with the real library and the small bundle.
final class AppTests: XCTestCase, @unchecked Sendable {  // since its tests run on the main actor
  static let bundle = URL(
    fileURLWithPath: ProcessInfo.processInfo.environment["MFT_TEST_BUNDLE"]!, isDirectory: true)
  private var folder: URL!

  override func setUpWithError() throws {
    folder = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString, isDirectory: true)
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
  }

  override func tearDown() { try? FileManager.default.removeItem(at: folder) }

  private var files: AppFiles { AppFiles(folder: folder.appendingPathComponent("app", isDirectory: true)) }

  /// An app with the small bundle and some examples.
  @MainActor private func app(examples: Int = 3) async throws -> AppModel {
    try FileManager.default.createDirectory(at: files.folder, withIntermediateDirectories: true)
    let app = try AppModel(files, limitMB: 500)
    await app.copyBundle(from: Self.bundle)
    XCTAssertEqual(app.board.message, "")
    for number in 0..<examples {
      let added = await app.examples.add(ExampleForm(question: " hello \(number) ", answer: "hi"))
      XCTAssertTrue(added, app.board.message)
    }
    return app
  }

  @MainActor func testFromExamplesToAnExportedAdapter() async throws {
    let app = try await app()
    XCTAssertEqual(app.examples.count, 3)
    app.budget.settings.steps = 30
    await app.look()
    XCTAssertTrue(app.budget.text.contains(" per step, 30 steps in "), app.budget.text)
    XCTAssertEqual(app.trainings.status, "Not trained yet.")
    app.export(to: folder)
    XCTAssertEqual(app.board.message, "There is no adapter yet. Train first.")

    await app.trainings.begin()
    XCTAssertTrue(app.trainings.status.hasPrefix("Done, loss "), app.trainings.status)
    XCTAssertEqual(app.trainings.step, 30)
    XCTAssertEqual(app.trainings.chart.points.count, 30)
    XCTAssertFalse(app.trainings.isOn)
    XCTAssertFalse(app.trainings.isUnfinished)

    await app.chat.ask("hello 1")
    XCTAssertFalse(app.chat.before.isEmpty)
    XCTAssertFalse(app.chat.after.isEmpty)
    XCTAssertNotEqual(app.chat.before, app.chat.after)
    app.export(to: folder)
    XCTAssertEqual(app.board.message, "Adapter exported.")
    XCTAssertTrue(hasAdapter(folder))
  }

  @MainActor func testMistakesAreShown() async throws {
    let app = try AppModel(files, limitMB: 500)
    await app.chat.ask("hello")
    XCTAssertEqual(app.board.message, "Choose a model first.")
    await app.trainings.begin()
    XCTAssertEqual(app.trainings.status, "Failed: Choose a model first.")
    await app.copyBundle(from: folder)
    XCTAssertEqual(app.board.message, "This folder is not a bundle: it has no bundle.json.")
    XCTAssertNil(app.bundle)

    let ready = try await self.app(examples: 0)
    await ready.chat.ask("  ")
    XCTAssertEqual(ready.board.message, "The question is empty.")
    for (form, mistake) in [
      (ExampleForm(question: "", answer: "hi"), "the question is empty"),
      (ExampleForm(question: "hello", answer: String(repeating: "a", count: 4001)),
       "the answer has 4001 characters; the maximum is 4000"),
    ] {
      let added = await ready.examples.add(form)
      XCTAssertFalse(added)
      XCTAssertEqual(ready.board.message, mistake)
    }
    let file = folder.appendingPathComponent("examples.txt")
    try "a\tb\n\nno tab\n{\"prompt\": \"c\", \"completion\": \"d\"}\n".write(to: file, atomically: true, encoding: .utf8)
    await ready.examples.read(file)
    XCTAssertEqual(
      ready.board.message, "2 added, 1 skipped: line 3: must have a question, a tab and an answer, or be a JSON row")
    XCTAssertEqual(ready.examples.count, 2)
  }

  @MainActor func testADamagedBundleChangesNothing() async throws {
    let app = try await app()
    let damaged = folder.appendingPathComponent("damaged", isDirectory: true)
    try FileManager.default.copyItem(at: Self.bundle, to: damaged)
    try Data("{}".utf8).write(to: damaged.appendingPathComponent("bundle.json"))
    await app.copyBundle(from: damaged)
    XCTAssertFalse(app.board.message.isEmpty)
    XCTAssertNotNil(app.bundle)
    app.budget.settings.steps = 1
    await app.trainings.begin()
    XCTAssertTrue(app.trainings.status.hasPrefix("Done"), app.trainings.status)
  }

  /// The losses of a training that nothing disturbs.
  @MainActor private func undisturbed(steps: Int) async throws -> [Double] {
    let app = try await app()
    app.budget.settings.steps = steps
    await app.trainings.begin()
    defer { try? FileManager.default.removeItem(at: files.folder) }
    return app.trainings.chart.points.map(\.loss)
  }

  @MainActor private func until(_ condition: () -> Bool) async throws {
    for _ in 0..<2000 where !condition() { try await Task.sleep(nanoseconds: 2_000_000) }
    XCTAssertTrue(condition())
  }

  @MainActor func testPausesAndChatsLeaveTheLossesAsTheyAre() async throws {
    let expected = try await undisturbed(steps: 150)
    let app = try await app()
    app.budget.settings.steps = 150
    let training = Task { await app.trainings.begin() }
    try await until { app.trainings.step >= 10 }
    await app.trainings.update(DeviceState(heat: .critical))
    try await until { !app.trainings.isRunning }
    XCTAssertEqual(app.trainings.status, "Waiting for the device to cool down.")
    let paused = app.trainings.step
    XCTAssertLessThan(paused, 150)
    await app.chat.ask("hello")
    XCTAssertFalse(app.chat.after.isEmpty)
    XCTAssertEqual(app.trainings.step, paused)
    await app.trainings.update(DeviceState())
    try await until { app.trainings.step >= paused + 5 }
    await app.chat.ask("hello")  // while it runs: it steps aside
    XCTAssertFalse(app.chat.after.isEmpty)
    await training.value
    XCTAssertTrue(app.trainings.status.hasPrefix("Done"), app.trainings.status)
    XCTAssertEqual(app.trainings.chart.points.map(\.loss), expected)
  }

  @MainActor func testATrainingGoesOnInAnotherProcess() async throws {
    let expected = try await undisturbed(steps: 150)
    let first = try await app()
    first.budget.settings.steps = 150
    let training = Task { await first.trainings.begin() }
    try await until { first.trainings.step >= 10 }
    await first.trainings.stop(bySystem: true)
    await training.value

    let second = try AppModel(files, limitMB: 500)
    XCTAssertTrue(second.trainings.isInterrupted)
    XCTAssertEqual(second.trainings.steps, 150)
    let going = Task { await second.trainings.goOn() }
    try await until { second.trainings.step >= first.trainings.step + 5 }
    await second.trainings.stop()
    await going.value
    XCTAssertTrue(second.trainings.status.hasPrefix("Stopped at step "), second.trainings.status)

    let third = try AppModel(files, limitMB: 500)
    XCTAssertFalse(third.trainings.isInterrupted)
    XCTAssertTrue(third.trainings.isUnfinished)
    await third.trainings.goOn()
    XCTAssertEqual(third.trainings.chart.points.map(\.loss), expected)
    await third.trainings.goOn()  // nothing is left
    XCTAssertEqual(third.trainings.step, 150)
  }

  @MainActor func testATrainingGoesOnWhenTheAppComesBack() async throws {
    let app = try await app()
    app.budget.settings.steps = 2000
    let training = Task { await app.trainings.begin() }
    try await until { app.trainings.step >= 5 }
    let leaving = Task { await app.trainings.stop(bySystem: true) }
    try await until { app.trainings.status == "Stopping after this step." || !app.trainings.isOn }
    app.trainings.resume()  // before the checkpoint, or after it
    await leaving.value
    await training.value
    let stopped = app.trainings.step
    try await until { app.trainings.step >= stopped + 5 }
    // Whom the user stopped, the system does not resume.
    async let byUser: Void = app.trainings.stop()
    async let bySystem: Void = app.trainings.stop(bySystem: true)
    _ = await (byUser, bySystem)
    XCTAssertFalse(app.trainings.isInterrupted)
    XCTAssertTrue(app.trainings.isUnfinished)
    app.trainings.resume()
    XCTAssertFalse(app.trainings.isOn)
  }

  @MainActor func testAStartThatFailsKeepsTheLastTraining() async throws {
    let app = try await app()
    app.budget.settings.steps = 5
    await app.trainings.begin()
    try Data().write(to: files.rows)
    await app.trainings.begin()
    XCTAssertTrue(app.trainings.status.hasPrefix("Failed: "), app.trainings.status)
    XCTAssertFalse(app.trainings.isUnfinished)
    XCTAssertNotNil(app.trainings.adapter)
  }

  @MainActor func testAStoppedAnswer() async throws {
    let app = try await app()
    let asking = Task { await app.chat.ask("hello") }
    try await until { app.chat.isOn }
    app.chat.stop()
    await asking.value
    XCTAssertFalse(app.chat.isOn)
    XCTAssertEqual(app.board.message, "")
  }

  @MainActor func testNights() async throws {
    let app = try await app(examples: 40)
    await app.trainings.update(DeviceState(minuteOfDay: 23 * 60))
    let night = Task { await app.trainings.learnAtNight() }
    try await until { app.trainings.isOnAtNight }
    await night.value
    XCTAssertTrue(app.trainings.nightStatus.hasPrefix("Night 1 was "), app.trainings.nightStatus)
    let status = app.trainings.nightStatus
    await app.trainings.learnAtNight()  // nothing is new
    XCTAssertEqual(app.trainings.nightStatus, status)

    // A night that its charger leaves begins again with it.
    for number in 40..<60 { await app.examples.add(ExampleForm(question: "hello \(number)", answer: "hi")) }
    await app.trainings.update(DeviceState(isCharging: false, minuteOfDay: 23 * 60))
    let second = Task { await app.trainings.learnAtNight() }
    try await until { app.trainings.status == "Waiting for a charger." }
    await app.trainings.update(DeviceState(minuteOfDay: 23 * 60))
    await second.value
    XCTAssertTrue(app.trainings.nightStatus.hasPrefix("Night 2 was "), app.trainings.nightStatus)

    // Another process shows it.
    XCTAssertEqual(try AppModel(files, limitMB: 500).trainings.nightStatus, app.trainings.nightStatus)
  }

  @MainActor func testAnotherModelBeginsNewNights() async throws {
    let app = try await app(examples: 40)
    app.budget.settings.steps = 2
    await app.trainings.begin()
    await app.trainings.update(DeviceState(minuteOfDay: 0))
    await app.trainings.learnAtNight()
    await app.copyBundle(from: Self.bundle)  // the same one
    XCTAssertTrue(app.trainings.nightStatus.hasPrefix("Night 1 was "))
    let other = folder.appendingPathComponent("other", isDirectory: true)
    try FileManager.default.copyItem(at: Self.bundle, to: other)
    let description = other.appendingPathComponent("bundle.json")
    try (Data(contentsOf: description) + Data("\n".utf8)).write(to: description)
    await app.copyBundle(from: other)
    XCTAssertEqual(app.board.message, "")
    XCTAssertEqual(app.trainings.nightStatus, "")
    XCTAssertFalse(exists(files.learner))
    XCTAssertNil(app.trainings.adapter)
    XCTAssertEqual(app.trainings.status, "Not trained yet.")
  }

  func testACopyThatDiedIsRecovered() throws {
    let target = folder.appendingPathComponent("target", isDirectory: true)
    for name in ["target.old", "target.new"] {
      try FileManager.default.createDirectory(
        at: folder.appendingPathComponent(name), withIntermediateDirectories: true)
    }
    try SafeFiles.recover(target)
    XCTAssertEqual(try FileManager.default.contentsOfDirectory(atPath: folder.path), ["target"])
  }
}
