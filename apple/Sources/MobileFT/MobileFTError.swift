import CMobileFT
import Foundation

/// Why a call failed. The message is one line that names the file, option or value and says what would be right.
public enum MobileFTError: Error, Sendable, Equatable {
  /// An empty path, or an unknown option.
  case argument(String)
  /// A problem with a file, an option's value or memory.
  case failed(String)
  /// Training ended early, with a checkpoint from which it can be resumed.
  case stopped(String)
  /// Another call on the same object is in progress.
  case busy(String)

  public var message: String {
    switch self {
    case .argument(let message), .failed(let message), .stopped(let message), .busy(let message): message
    }
  }
}

extension MobileFTError: LocalizedError, CustomStringConvertible {
  public var errorDescription: String? { message }
  public var description: String { message }
}

/// Throws the error of a call that this thread has just made.
func check(_ status: mft_status) throws {
  if status == MFT_OK { return }
  let message = mft_last_error().map { String(cString: $0) } ?? ""
  switch status {
  case MFT_ERROR_ARGUMENT: throw MobileFTError.argument(message)
  case MFT_STOPPED: throw MobileFTError.stopped(message)
  case MFT_ERROR_BUSY: throw MobileFTError.busy(message)
  default: throw MobileFTError.failed(message)
  }
}
