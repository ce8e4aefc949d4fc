import Observation

/// The latest message to the user: an error, or the result of the last action.
@MainActor @Observable public final class Board {
  public private(set) var message = ""

  public func say(_ text: String) { message = text }
  public func say(_ error: any Error) { message = error.localizedDescription }
}
