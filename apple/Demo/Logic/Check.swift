import Foundation
import MobileFT

/// What the app does in place of its window if it is launched with `--check`, for `tools/phone_check.py --iphone`:
///
///     --check reset                       empties the folder of checks
///     --check train BUNDLE --data TOKENS --out FOLDER [--resume] [options]
///
/// `train` does what `mft-run train` does; its paths are relative to the folder of checks. Without `--resume`, it
/// deletes an earlier output. SIGINT and SIGTERM end it after the current step, with a checkpoint.
///
/// The output has lines of JSON: first a "device" with the facts and the process id, then a "heat", which also precedes
/// each event of the training. If the check fails, the last line is an "error" with its message.
public struct Check: Sendable {
  private static let flag = "--check"

  private let arguments: [String]
  private let folder: URL
  private let print: @Sendable (String) throws -> Void

  /// Returns nil if the arguments of the process do not ask for a check. `print` receives the lines.
  public init?(
    _ processArguments: [String], folder: URL, print: @escaping @Sendable (String) throws -> Void = Self.printLine
  ) {
    guard let flag = processArguments.firstIndex(of: Self.flag) else { return nil }
    arguments = Array(processArguments[(flag + 1)...])
    self.folder = folder
    self.print = print
  }

  /// Returns the exit status. `state` reads the device's heat and battery.
  public func run(_ facts: DeviceFacts, state: @Sendable () async -> DeviceState) async -> Int32 {
    do {
      try print(line(facts))
      try print(line(HeatLine(await state())))
      switch arguments.first {
      case "reset": try reset()
      case "train": try await train(arguments.dropFirst(), state)
      default: throw AppError("\(Self.flag): must be followed by reset or train")
      }
      return 0
    } catch {
      try? print(line(ErrorLine(message: error.localizedDescription)))
      return 1
    }
  }

  private func reset() throws {
    try SafeFiles.delete(folder)
    // For the bundle's files, which are copied one by one.
    try FileManager.default.createDirectory(at: path("bundle"), withIntermediateDirectories: true)
  }

  private func train(_ words: ArraySlice<String>, _ state: @Sendable () async -> DeviceState) async throws {
    let (files, options) = try parse(words)
    if !files.resume { try SafeFiles.delete(files.out) }
    let trainer = try await Trainer(files, options: options)
    let signals = Signals([SIGINT, SIGTERM]) { trainer.cancel() }
    defer { signals.end() }
    for try await event in trainer.json {
      try print(line(HeatLine(await state())))
      try print(event)
    }
  }

  private func parse(_ words: ArraySlice<String>) throws -> (Trainer.Files, TrainOptions) {
    var rest = words, paths: [String: URL] = [:], options = TrainOptions(), resume = false
    while let word = rest.popFirst() {
      guard word.hasPrefix("--") else {
        if paths["bundle"] != nil { throw AppError("unexpected argument \(word)") }
        paths["bundle"] = path(word)
        continue
      }
      let name = String(word.dropFirst(2))
      if name == "resume" {
        resume = true
        continue
      }
      guard let value = rest.popFirst() else { throw AppError("\(word) requires a value") }
      if ["data", "out"].contains(name) {
        paths[name] = path(value)
      } else {
        try options.set(name.replacingOccurrences(of: "-", with: "_"), to: value)
      }
    }
    func required(_ name: String, _ word: String) throws -> URL {
      guard let found = paths[name] else { throw AppError("train: \(word) is missing") }
      return found
    }
    var files = Trainer.Files(
      bundle: try required("bundle", "the folder of the bundle"), data: try required("data", "--data"),
      out: try required("out", "--out"))
    files.resume = resume
    return (files, options)
  }

  private func path(_ name: String) -> URL { folder.appendingPathComponent(name) }

  /// Prints at once, also to a pipe.
  public static func printLine(_ text: String) throws {
    try FileHandle.standardOutput.write(contentsOf: Data("\(text)\n".utf8))
  }
}

/// Calls `action` at signals, in place of their default, the end of the process.
private struct Signals {
  private let sources: [any DispatchSourceSignal]

  init(_ numbers: [Int32], action: @escaping @Sendable () -> Void) {
    sources = numbers.map { number in
      #if !os(Linux)  // Linux' Dispatch replaces the default itself, and would not see ignored signals
      signal(number, SIG_IGN)
      #endif
      let source = DispatchSource.makeSignalSource(signal: number, queue: .global())
      source.setEventHandler(handler: action)
      source.resume()
      return source
    }
  }

  func end() { sources.forEach { $0.cancel() } }
}
