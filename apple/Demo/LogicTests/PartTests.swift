import XCTest

@testable import DemoLogic

final class PartTests: XCTestCase {
  func testAChartKeepsItsNumberOfPoints() {
    var chart = LossChart(mostPoints: 4)
    for step in 1...10 { chart.add(step: step, loss: Double(step), memoryMB: Double(100 - step)) }
    chart.add(step: 3, loss: 100, memoryMB: 0)  // known
    XCTAssertEqual(chart.points.map(\.step), [4, 8, 10])
    XCTAssertEqual(chart.points.map(\.loss), [2.5, 6.5, 9.5])
    XCTAssertEqual(chart.points.map(\.memoryMB), [99, 95, 91])
    XCTAssertLessThan(chart.points[2].smoothedLoss, 10)
  }

  func testALogWithABrokenLine() throws {
    let file = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
    defer { try? FileManager.default.removeItem(at: file) }
    let log = StepLog(file: file)
    XCTAssertEqual(try log.chart().points, [])
    try log.add(step: 1, loss: 2.5, memoryMB: 100)
    try log.add(step: 2, loss: 2.25, memoryMB: 101)
    try (Data(contentsOf: file) + Data("3\t2.".utf8)).write(to: file)
    XCTAssertEqual(try log.chart().points.map(\.loss), [2.5, 2.25])
  }

  func testASlider() {
    let slider = BudgetSlider(smallestPlanMB: 100.2, limitMB: 333)
    XCTAssertEqual([0, 0.5, 1].map(slider.budgetMB), [133, 233, 333])
    XCTAssertEqual(BudgetSlider(smallestPlanMB: 100, limitMB: 50).budgetMB(1), 132)
    XCTAssertEqual([0.054, 0.5, 1, 99.6, 119, 121, 7200].map(BudgetSlider.time),
      ["0.054 s", "0.50 s", "1.0 s", "100 s", "119 s", "2.0 min", "2.0 h"])
  }

  func testSettingsStayWithinTheirRange() throws {
    var settings = Settings()
    settings.steps = 0
    settings.position = 2
    XCTAssertEqual(settings.steps, 1)
    XCTAssertEqual(settings.position, 1)
    let copy = try JSONDecoder().decode(Settings.self, from: JSONEncoder().encode(settings))
    XCTAssertEqual(copy, settings)
  }

  func testATaskComesBeforeATraining() async throws {
    let computer = Computer()
    actor Order {
      var names: [String] = []
      func add(_ name: String) { names.append(name) }
    }
    let order = Order()
    let (asked, ask) = AsyncStream.makeStream(of: Void.self)
    let first = Task {
      await computer.slice(whenWanted: { ask.finish() }) {
        for await _ in asked {}  // until a task waits
        await order.add("first slice")
      }
    }
    try await Task.sleep(nanoseconds: 20_000_000)
    let second = Task { await computer.slice(whenWanted: {}) { await order.add("second slice") } }
    try await Task.sleep(nanoseconds: 20_000_000)
    let task = Task { await computer.task { await order.add("task") } }
    for each in [first, second, task] { await each.value }
    let names = await order.names
    XCTAssertEqual(names, ["first slice", "task", "second slice"])
  }
}
