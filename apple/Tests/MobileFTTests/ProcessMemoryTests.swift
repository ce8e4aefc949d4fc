import XCTest

@testable import MobileFT

final class ProcessMemoryTests: XCTestCase {
  func testMemoryIsKnown() {
    let memory = ProcessMemory.now()
    XCTAssertGreaterThan(memory.current, 1_000_000)
    XCTAssertGreaterThanOrEqual(memory.peak, memory.current)
  }
}
