import MobileFT
import XCTest

@testable import DemoLogic

/// `--check`, which `tools/phone_check.py --iphone` uses, compared with `mft-run`.
final class CheckTests: XCTestCase {
  private static let program = URL(fileURLWithPath: ProcessInfo.processInfo.environment["MFT_RUN"]!)
  private static let training = ["train", "bundle", "--data", "train.tokens", "--out", "out", "--seq-len", "64"]
  private static let facts = DeviceFacts(cores: [2, 4], limitMB: 3072.5)

  private var folder: URL!

  override func setUp() async throws {
    folder = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString, isDirectory: true)
    let (status, printed) = await check(["reset"])
    XCTAssertEqual(status, 0)
    XCTAssertEqual(printed.map(\.event), ["device", "heat"])
    let bundle = folder.appendingPathComponent("bundle", isDirectory: true)
    for name in try FileManager.default.contentsOfDirectory(atPath: AppTests.bundle.path) {
      try FileManager.default.copyItem(
        at: AppTests.bundle.appendingPathComponent(name), to: bundle.appendingPathComponent(name))
    }
    let dataset = try await Dataset(rows: folder.appendingPathComponent("rows.jsonl"), bundle: bundle)
    for text in ["hello hello, this is a longer text", "1 + 1 = 2", "hi"] { try await dataset.add(text: text) }
    var options = TrainOptions()
    options.sequenceLength = 64
    try await dataset.writeTokens(to: folder.appendingPathComponent("train.tokens"), options: options)
  }

  override func tearDown() { try? FileManager.default.removeItem(at: folder) }

  private struct Line: Decodable {
    let event: String
    let step: Int?
    let loss: Double?
    let losses: [Double]?
    let stepsDone: Int?
    let message: String?

    enum CodingKeys: String, CodingKey {
      case event, step, loss, losses, message
      case stepsDone = "steps_done"
    }

    init(_ text: String) { self = try! JSONDecoder().decode(Line.self, from: Data(text.utf8)) }
  }

  /// The exit status and the lines. `onLine` is called with each one.
  private func check(
    _ arguments: [String], state: DeviceState = DeviceState(), onLine: @escaping @Sendable (Line) -> Void = { _ in }
  ) async -> (Int32, [Line]) {
    let printed = Printed()
    let check = Check(["/the/app", "--check"] + arguments, folder: folder) { text in
      printed.add(text)
      onLine(Line(text))
    }
    let status = await check!.run(Self.facts) { state }
    return (status, printed.lines.map { Line($0) })
  }

  private final class Printed: @unchecked Sendable {  // its variable is used under the lock
    private let lock = NSLock()
    private var texts: [String] = []
    func add(_ text: String) { lock.withLock { texts.append(text) } }
    var lines: [String] { lock.withLock { texts } }
  }

  /// The lines of `mft-run` with these arguments in the folder. It is killed at the first line for which `isLast` holds.
  private func native(_ arguments: [String], killAt isLast: (Line) -> Bool = { _ in false }) throws -> [Line] {
    let process = Process(), pipe = Pipe()
    process.executableURL = Self.program
    process.arguments = arguments
    process.currentDirectoryURL = folder
    process.standardOutput = pipe
    try process.run()
    var text = Data()
    var isKilled = false
    while true {
      let more = pipe.fileHandleForReading.availableData
      if more.isEmpty { break }
      text += more
      let whole = text.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).dropLast()
      if !isKilled, whole.contains(where: { isLast(Line(String(decoding: $0, as: UTF8.self))) }) {
        isKilled = true
        kill(process.processIdentifier, SIGKILL)
      }
    }
    process.waitUntilExit()
    XCTAssertEqual(process.terminationReason, isKilled ? .uncaughtSignal : .exit)
    XCTAssertTrue(isKilled || process.terminationStatus == 0)
    return text.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).dropLast()
      .map { Line(String(decoding: $0, as: UTF8.self)) }
  }

  private func losses(_ lines: [Line]) -> [UInt64] {
    lines.filter { $0.event == "step" }.map { $0.loss!.bitPattern }
  }

  func testTheEventsAreThoseOfMftRun() async throws {
    let options = Self.training + ["--lr", "1e-2", "--steps", "10", "--save-every", "5"]
    let expected = try native(options)
    let (status, printed) = await check(options)
    XCTAssertEqual(status, 0)
    XCTAssertEqual(losses(expected).count, 10)
    XCTAssertEqual(losses(printed), losses(expected))
    XCTAssertEqual(printed.last?.losses, expected.last?.losses)
    // The facts, and before each event the heat.
    let events = expected.map(\.event)
    XCTAssertEqual(printed.map(\.event), ["device", "heat"] + events.flatMap { ["heat", $0] })
  }

  func testWhatTheDeviceSays() throws {
    let state = DeviceState(isCharging: false, battery: 0.83, heat: .serious)
    XCTAssertEqual(
      try line(HeatLine(state)), #"{"battery_percent":83,"charging":false,"event":"heat","thermal":"serious"}"#)
    let facts = try JSONSerialization.jsonObject(with: Data(line(Self.facts).utf8)) as! [String: Any]
    XCTAssertEqual(facts["pid"] as? Int, Int(ProcessInfo.processInfo.processIdentifier))
    XCTAssertEqual(facts["cores"] as? [Int], [2, 4])
    XCTAssertEqual(facts["limit_mb"] as? Double, 3072.5)
    XCTAssertFalse((facts["model"] as! String).isEmpty)
    XCTAssertFalse((facts["system"] as! String).isEmpty)
    XCTAssertGreaterThan(facts["memory"] as! Int, 1_000_000_000)
    XCTAssertFalse(DeviceFacts(cores: [], limitMB: 0).cores.isEmpty)
  }

  func testASignalEndsItWithACheckpoint() async throws {
    let options = Self.training + ["--steps", "400"]
    let expected = losses(try native(options))
    let (status, before) = await check(options) { line in
      if line.event == "step", line.step == 5 { kill(getpid(), SIGTERM) }
    }
    XCTAssertEqual(status, 1)
    XCTAssertEqual(before.suffix(3).map(\.event), ["heat", "stopped", "error"])
    XCTAssertEqual(before.last?.message?.isEmpty, false)
    let done = losses(before).count
    XCTAssertTrue((5..<400).contains(done))

    let (resumed, after) = await check(options + ["--resume"])
    XCTAssertEqual(resumed, 0)
    XCTAssertEqual(losses(before + after), expected)
  }

  func testAKilledRunIsResumed() async throws {
    let options = Self.training + ["--steps", "200", "--save-every", "1"]
    let killed = try native(options) { $0.event == "saved" && $0.step == 3 }
    let (status, rest) = await check(options + ["--resume"])
    XCTAssertEqual(status, 0)
    let done = try XCTUnwrap(rest.first { $0.event == "plan" }?.stepsDone)
    XCTAssertTrue((3..<200).contains(done))
    // A run without --resume begins anew, in the same folder.
    let (again, whole) = await check(options)
    XCTAssertEqual(again, 0)
    XCTAssertEqual(losses(whole).count, 200)
    XCTAssertEqual(losses(rest), Array(losses(whole)[done...]))
    XCTAssertEqual(losses(killed), Array(losses(whole).prefix(losses(killed).count)))
    XCTAssertEqual(rest.last?.losses, whole.last?.losses)
  }

  func testMistakes() async throws {
    let mistakes: [([String], String)] = [
      ([], "--check: must be followed by reset or train"),
      (["eval"], "--check: must be followed by reset or train"),
      (["train", "--data", "train.tokens", "--out", "out"], "train: the folder of the bundle is missing"),
      (["train", "bundle", "--out", "out"], "train: --data is missing"),
      (["train", "bundle", "--data", "train.tokens"], "train: --out is missing"),
      (["train", "bundle", "more"], "unexpected argument more"),
      (Self.training + ["--steps"], "--steps requires a value"),
      (Self.training + ["--stepz", "1"], "stepz"),
      (Self.training + ["--steps", "many"], "many"),
      (["train", "nowhere"] + Self.training.dropFirst(2), "nowhere"),
      (Self.training + ["--resume"], "out"),
    ]
    for (arguments, message) in mistakes {
      let (status, printed) = await check(arguments)
      XCTAssertEqual(status, 1, "\(arguments)")
      XCTAssertEqual(printed.last?.event, "error", "\(arguments)")
      XCTAssertTrue(printed.last?.message?.contains(message) == true, "\(printed.last?.message ?? "")")
    }
    XCTAssertNil(Check(["/the/app"], folder: folder))
  }
}
