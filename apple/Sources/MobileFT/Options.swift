import CMobileFT

/// What all options have in common: names with values as text.
protocol OptionsByName: Sendable {
  init()
  /// The options that were set.
  var values: [String: String] { get set }
  static func makeDefaults() -> OpaquePointer?
}

extension OptionsByName {
  mutating func setChecked(_ name: String, to value: String) throws {
    try OptionsHandle(Self()).set(name, value)
    values[name] = value
  }

  func valueOrDefault(of name: String) -> String? {
    values[name] ?? (try? OptionsHandle(Self()))?.value(of: name)
  }

  subscript(integer name: String) -> Int? {
    get { values[name].flatMap { Int($0) } }
    set { values[name] = newValue.map { String($0) } }
  }

  subscript(number name: String) -> Double? {
    get { values[name].flatMap { Double($0) } }
    set { values[name] = newValue.map { String($0) } }
  }

  subscript(text name: String) -> String? {
    get { values[name] }
    set { values[name] = newValue }
  }
}

/// Options of training and of plans, by the names of `mft-run options`, with underscores. Options that are not set have
/// their defaults. Frequent ones have properties, whose values are checked by the call that uses them.
public struct TrainOptions: OptionsByName {
  var values: [String: String] = [:]
  public init() {}
  static func makeDefaults() -> OpaquePointer? { mft_train_options_new() }

  /// Sets an option by its name, such as "lr" to "1e-3". Throws if it does not exist or the value is not of its type.
  /// Ranges are checked by the call that uses the options.
  public mutating func set(_ name: String, to value: String) throws { try setChecked(name, to: value) }
  /// An option's value as text, also if it is the default. Nil if the option does not exist.
  public func value(of name: String) -> String? { valueOrDefault(of: name) }

  /// Optimizer steps. Excludes `epochs`.
  public var steps: Int? { get { self[integer: "steps"] } set { self[integer: "steps"] = newValue } }
  /// Passes over the data; may be a fraction.
  public var epochs: Double? { get { self[number: "epochs"] } set { self[number: "epochs"] = newValue } }
  /// Peak learning rate. Nil: by the model, LoRA, schedule and loss.
  public var learningRate: Double? { get { self[number: "lr"] } set { self[number: "lr"] = newValue } }
  /// Tokens per sequence.
  public var sequenceLength: Int? { get { self[integer: "seq_len"] } set { self[integer: "seq_len"] = newValue } }
  /// Memory limit, such as "512MB", "1GiB" or a number of bytes.
  public var budget: String? { get { self[text: "budget"] } set { self[text: "budget"] = newValue } }
  /// Which layers each step trains: "full", "lcsb", "dropbp", "freeze", "suffix" or "lisa".
  public var schedule: String? { get { self[text: "schedule"] } set { self[text: "schedule"] = newValue } }
  /// The share of layers that a step trains.
  public var ratio: Double? { get { self[number: "ratio"] } set { self[number: "ratio"] = newValue } }
  /// "sft", "dpo", "ipo", "orpo", "simpo" or "kto".
  public var loss: String? { get { self[text: "loss"] } set { self[text: "loss"] = newValue } }
  /// Steps between validations.
  public var evaluateEvery: Int? { get { self[integer: "eval_every"] } set { self[integer: "eval_every"] = newValue } }
  /// Steps between checkpoints.
  public var saveEvery: Int? { get { self[integer: "save_every"] } set { self[integer: "save_every"] = newValue } }
  /// Decides the order of the data, and draws of layers.
  public var seed: Int? { get { self[integer: "seed"] } set { self[integer: "seed"] = newValue } }
  /// Threads; 0: one for each big core.
  public var threads: Int? { get { self[integer: "threads"] } set { self[integer: "threads"] = newValue } }
}

/// Options of answers, as ``TrainOptions``.
public struct GenerateOptions: OptionsByName {
  var values: [String: String] = [:]
  public init() {}
  static func makeDefaults() -> OpaquePointer? { mft_generate_options_new() }

  /// Sets an option by its name, such as "lr" to "1e-3". Throws if it does not exist or the value is not of its type.
  /// Ranges are checked by the call that uses the options.
  public mutating func set(_ name: String, to value: String) throws { try setChecked(name, to: value) }
  /// An option's value as text, also if it is the default. Nil if the option does not exist.
  public func value(of name: String) -> String? { valueOrDefault(of: name) }

  /// Most tokens of an answer.
  public var maxTokens: Int? { get { self[integer: "max_tokens"] } set { self[integer: "max_tokens"] = newValue } }
  /// 0: the most likely token each time.
  public var temperature: Double? { get { self[number: "temp"] } set { self[number: "temp"] = newValue } }
  public var seed: Int? { get { self[integer: "seed"] } set { self[integer: "seed"] = newValue } }
}

/// Options of a night, as ``TrainOptions``: those of training, and its own.
public struct LearnOptions: OptionsByName {
  var values: [String: String] = [:]
  public init() {}
  static func makeDefaults() -> OpaquePointer? { mft_learn_options_new() }

  /// Sets an option by its name, such as "lr" to "1e-3". Throws if it does not exist or the value is not of its type.
  /// Ranges are checked by the call that uses the options.
  public mutating func set(_ name: String, to value: String) throws { try setChecked(name, to: value) }
  /// An option's value as text, also if it is the default. Nil if the option does not exist.
  public func value(of name: String) -> String? { valueOrDefault(of: name) }

  /// Memory limit of the whole night, such as "300MB".
  public var budget: String? { get { self[text: "budget"] } set { self[text: "budget"] = newValue } }
  /// Limit of a night's training time.
  public var minutes: Double? { get { self[number: "minutes"] } set { self[number: "minutes"] = newValue } }
}

/// Options as the C library takes them.
final class OptionsHandle {
  let pointer: OpaquePointer

  init(_ options: some OptionsByName) throws {
    guard let made = type(of: options).makeDefaults() else { throw MobileFTError.failed("out of memory") }
    pointer = made
    // In an order that does not change, so that of two wrong options the same one is named each time.
    for (name, value) in options.values.sorted(by: { $0.key < $1.key }) { try set(name, value) }
  }

  deinit { mft_options_free(pointer) }

  func set(_ name: String, _ value: String) throws {
    try check(mft_options_set(pointer, withoutNul("name", name), withoutNul(name, value)))
  }

  func value(of name: String) -> String? {
    guard let name = try? withoutNul("name", name) else { return nil }
    return mft_options_get(pointer, name).map { String(cString: $0) }
  }
}
