// What `Demo/App` uses of BackgroundTasks; see SwiftUI.swift.

import Dispatch
import Foundation

open class BGTask {
  public var expirationHandler: (() -> Void)?
  public func setTaskCompleted(success: Bool) {}
}
public final class BGProcessingTaskRequest {
  public init(identifier: String) {}
  public var requiresExternalPower: Bool { get { fatalError() } set {} }
  public var earliestBeginDate: Date? { get { fatalError() } set {} }
}
public final class BGTaskScheduler: @unchecked Sendable {
  public static var shared: BGTaskScheduler { fatalError() }
  @discardableResult public func register(
    forTaskWithIdentifier identifier: String, using queue: DispatchQueue?,
    launchHandler: @escaping @Sendable (BGTask) -> Void
  ) -> Bool { fatalError() }
  public func submit(_ request: BGProcessingTaskRequest) throws {}
  public func cancel(taskRequestWithIdentifier identifier: String) {}
}
