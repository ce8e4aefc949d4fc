import CMobileFT

/// Gives the C library's texts (events, pieces of answers) to Swift, until `take` returns false or throws.
final class Reports {
  private let take: (String) throws -> Bool
  private var error: (any Error)?

  init(_ take: @escaping (String) throws -> Bool) { self.take = take }

  /// Makes a call of the library that reports to this object. Throws what `take` threw, or the call's error.
  func during(
    _ call: (@convention(c) (UnsafePointer<CChar>?, UnsafeMutableRawPointer?) -> Int32, UnsafeMutableRawPointer)
      throws -> mft_status
  ) throws {
    let status = try call(
      { text, reports in
        guard let text, let reports else { return 1 }
        return Unmanaged<Reports>.fromOpaque(reports).takeUnretainedValue().receive(String(cString: text))
      }, Unmanaged.passUnretained(self).toOpaque())
    if let error { throw error }
    try check(status)
  }

  private func receive(_ text: String) -> Int32 {
    do {
      return try take(text) ? 0 : 1
    } catch {
      self.error = error
      return 1
    }
  }
}
