import XCTest

@testable import DemoLogic

final class PolicyTests: XCTestCase {
  func testEveryConditionPauses() {
    let night = TrainingPolicy.night
    let good = DeviceState(battery: 0.9, minuteOfDay: 23 * 60)
    XCTAssertNil(night.reasonToPause(good, isPaused: false))
    func reason(_ change: (inout DeviceState) -> Void, _ policy: TrainingPolicy = .night) -> String? {
      var device = good
      change(&device)
      return policy.reasonToPause(device, isPaused: false)
    }
    XCTAssertEqual(reason { $0.isCharging = false }, "Waiting for a charger.")
    XCTAssertEqual(reason { $0.battery = 0.19 }, "Waiting for the battery to reach 20 percent.")
    XCTAssertEqual(reason { $0.heat = .serious }, "Waiting for the device to cool down.")
    XCTAssertEqual(reason { $0.isShortOfMemory = true }, "Waiting for memory, because other apps need it.")
    XCTAssertEqual(reason { $0.minuteOfDay = 12 * 60 }, "Waiting until 22:00.")
    XCTAssertNil(reason { $0.savesPower = true })  // with a charger
    let onBattery: (inout DeviceState) -> Void = { $0.isCharging = false }
    XCTAssertNil(reason(onBattery, .now))
    XCTAssertEqual(
      reason({ ($0.isCharging, $0.battery) = (false, 0.49) }, .now), "Waiting for the battery to reach 50 percent.")
    XCTAssertEqual(
      reason({ ($0.isCharging, $0.savesPower) = (false, true) }, .now), "Waiting for Low Power Mode to end.")
  }

  func testAPauseEndsLater() {
    let policy = TrainingPolicy.now
    XCTAssertNil(policy.reasonToPause(DeviceState(battery: 0.22), isPaused: false))
    XCTAssertNotNil(policy.reasonToPause(DeviceState(battery: 0.22), isPaused: true))
    XCTAssertNil(policy.reasonToPause(DeviceState(heat: .fair), isPaused: false))
    XCTAssertNotNil(policy.reasonToPause(DeviceState(heat: .fair), isPaused: true))
  }

  func testAWindowPassesMidnight() {
    let night = DailyWindow(from: 22 * 60, to: 6 * 60)
    for (minute, isOpen) in [(22 * 60, true), (0, true), (5 * 60 + 59, true), (6 * 60, false), (12 * 60, false)] {
      XCTAssertEqual(night.contains(minute), isOpen)
    }
    XCTAssertTrue(DailyWindow.allDay.contains(12 * 60))
    XCTAssertEqual(night.minutesUntilNextOpening(21 * 60), 60)
    XCTAssertEqual(night.minutesUntilNextOpening(22 * 60), 24 * 60)
    XCTAssertEqual(night.minutesUntilNextOpening(23 * 60), 23 * 60)
  }
}
