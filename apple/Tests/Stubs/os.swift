// What `Demo/App` uses of os; see SwiftUI.swift.

public func os_proc_available_memory() -> Int { fatalError() }
