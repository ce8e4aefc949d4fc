// What `Demo/App` uses of SwiftUI, with the types that its documentation gives. `check_types.sh` checks those sources against
// this file, since Linux lacks the framework. Nothing here shows anything.

@_exported import Foundation
@_exported import Observation

@MainActor @preconcurrency public protocol View {
  associatedtype Body: View
  @ViewBuilder var body: Body { get }
}
extension Never: View { public var body: Never { return fatalError() } }
extension Optional: View where Wrapped: View { public var body: Never { return fatalError() } }
public struct AnyContent: View { public var body: Never { return fatalError() } }
public protocol Leaf: View where Body == Never {}
extension Leaf { public var body: Never { return fatalError() } }

@resultBuilder public struct ViewBuilder {
  public static func buildBlock<each Content: View>(_ content: repeat each Content) -> AnyContent { AnyContent() }
  public static func buildOptional<Content: View>(_ content: Content?) -> Content? { content }
  public static func buildEither<Content: View>(first: Content) -> AnyContent { AnyContent() }
  public static func buildEither<Content: View>(second: Content) -> AnyContent { AnyContent() }
}

@MainActor @preconcurrency public protocol App {
  associatedtype Body: Scene
  @SceneBuilder var body: Body { get }
  init()
}
extension App { public static func main() {} }
@MainActor @preconcurrency public protocol Scene {}
@resultBuilder public struct SceneBuilder {
  public static func buildBlock<Content: Scene>(_ content: Content) -> Content { content }
}
public struct WindowGroup: Scene {
  public nonisolated init<Content: View>(@ViewBuilder content: () -> Content) {}
}

@propertyWrapper public struct State<Value> {
  public init(wrappedValue: Value) {}
  public var wrappedValue: Value {
    get { fatalError() }
    nonmutating set {}
  }
  public var projectedValue: Binding<Value> { fatalError() }
}
@propertyWrapper @dynamicMemberLookup public struct Binding<Value> {
  public init(get: @escaping () -> Value, set: @escaping (Value) -> Void) {}
  public var wrappedValue: Value {
    get { fatalError() }
    nonmutating set {}
  }
  public var projectedValue: Binding<Value> { self }
  public subscript<T>(dynamicMember path: WritableKeyPath<Value, T>) -> Binding<T> { fatalError() }
}
@propertyWrapper @dynamicMemberLookup public struct Bindable<Value> {
  public init(wrappedValue: Value) where Value: AnyObject, Value: Observable {}
  public var wrappedValue: Value { fatalError() }
  public var projectedValue: Bindable<Value> { self }
  public subscript<T>(dynamicMember path: ReferenceWritableKeyPath<Value, T>) -> Binding<T> where Value: AnyObject {
    fatalError()
  }
}
public struct EnvironmentValues { public var scenePhase: ScenePhase { fatalError() } }
public enum ScenePhase: Comparable, Sendable { case background, inactive, active }
@propertyWrapper public struct Environment<Value> {
  public init(_ path: KeyPath<EnvironmentValues, Value>) {}
  public var wrappedValue: Value { fatalError() }
}

public struct Text: Leaf {
  public init(_ text: LocalizedStringKey) {}
  @_disfavoredOverload public init<S: StringProtocol>(_ text: S) {}
}
public struct LocalizedStringKey: ExpressibleByStringInterpolation { public init(stringLiteral value: String) {} }
public struct Label: Leaf { public init(_ title: LocalizedStringKey, systemImage: String) {} }
public struct Button: Leaf {
  public init(_ title: LocalizedStringKey, action: @escaping @MainActor () -> Void) {}
}
public struct TextField: Leaf {
  public init(_ title: LocalizedStringKey, text: Binding<String>, axis: Axis) {}
}
public enum Axis { case horizontal, vertical }
public struct Slider: Leaf {
  public init<Name: View>(value: Binding<Double>, @ViewBuilder label: () -> Name) {}
}
public struct Stepper: Leaf {
  public init(_ title: LocalizedStringKey, value: Binding<Int>, in bounds: ClosedRange<Int>, step: Int) {}
}
public struct Toggle: Leaf { public init(_ title: LocalizedStringKey, isOn: Binding<Bool>) {} }
public struct ProgressView: Leaf { public init(_ title: LocalizedStringKey, value: Double?) {} }
public struct TabView: Leaf { public init<Content: View>(@ViewBuilder content: () -> Content) {} }
public struct Form: Leaf { public init<Content: View>(@ViewBuilder content: () -> Content) {} }
public struct Section: Leaf {
  public init<Content: View>(_ title: LocalizedStringKey, @ViewBuilder content: () -> Content) {}
}

public struct UTType: Sendable {
  public static var folder: UTType { fatalError() }
  public static var plainText: UTType { fatalError() }
  public static var json: UTType { fatalError() }
  public static var data: UTType { fatalError() }
}
public struct Font { public static var footnote: Font { fatalError() } }
public struct Material { public static var thinMaterial: Material { fatalError() } }
public enum VerticalEdge { case top, bottom }

extension View {
  public func padding(_ length: Double = 16) -> some View { AnyContent() }
  public func frame(maxWidth: Double) -> some View { AnyContent() }
  public func frame(height: Double) -> some View { AnyContent() }
  public func font(_ font: Font) -> some View { AnyContent() }
  public func background(_ material: Material) -> some View { AnyContent() }
  public func disabled(_ disabled: Bool) -> some View { AnyContent() }
  public func accessibilityLabel(_ label: LocalizedStringKey) -> some View { AnyContent() }
  public func tabItem<Item: View>(@ViewBuilder _ item: () -> Item) -> some View { AnyContent() }
  public func task(_ action: @escaping @Sendable @MainActor () async -> Void) -> some View { AnyContent() }
  public func onChange<Value: Equatable>(of value: Value, _ action: @escaping () -> Void) -> some View { AnyContent() }
  public func safeAreaInset<Content: View>(edge: VerticalEdge, @ViewBuilder content: () -> Content) -> some View {
    AnyContent()
  }
  public func fileImporter(
    isPresented: Binding<Bool>, allowedContentTypes: [UTType],
    onCompletion: @escaping (Result<URL, any Error>) -> Void
  ) -> some View { AnyContent() }
}

// Of Foundation, what Linux lacks.
extension URL {
  public func startAccessingSecurityScopedResource() -> Bool { fatalError() }
  public func stopAccessingSecurityScopedResource() {}
}
