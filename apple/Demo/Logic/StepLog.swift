import Foundation

/// The steps of a run in a file, for the chart. A line is "step TAB loss TAB MB".
struct StepLog: Sendable {
  let file: URL

  func add(step: Int, loss: Double, memoryMB: Double) throws {
    if !exists(file) { try Data().write(to: file) }
    let handle = try FileHandle(forWritingTo: file)
    defer { try? handle.close() }
    try handle.seekToEnd()
    try handle.write(contentsOf: Data("\(step)\t\(loss)\t\(memoryMB)\n".utf8))
  }

  /// All steps as a chart. An incomplete line, which a dying process may leave, is ignored.
  func chart() throws -> LossChart {
    var chart = LossChart()
    guard exists(file) else { return chart }
    for line in String(decoding: try Data(contentsOf: file), as: UTF8.self).split(separator: "\n") {
      let parts = line.split(separator: "\t")
      guard parts.count == 3, let step = Int(parts[0]), let loss = Double(parts[1]), let memory = Double(parts[2])
      else { continue }
      chart.add(step: step, loss: loss, memoryMB: memory)
    }
    return chart
  }
}
