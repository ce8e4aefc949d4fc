// What `Demo/App` uses of Swift Charts; see SwiftUI.swift.

import SwiftUI

public protocol ChartContent {}
public struct AnyChart: ChartContent {}
@resultBuilder public struct ChartContentBuilder {
  public static func buildBlock<each Content: ChartContent>(_ content: repeat each Content) -> AnyChart { AnyChart() }
}
public struct Chart: Leaf {
  public init<Data: RandomAccessCollection, Content: ChartContent>(
    _ data: Data, @ChartContentBuilder content: @escaping (Data.Element) -> Content
  ) where Data.Element: Identifiable {}
}
public struct PlottableValue<Value> {
  public static func value(_ label: LocalizedStringKey, _ value: Value) -> PlottableValue<Value> { fatalError() }
}
public struct PointMark: ChartContent { public init<X, Y>(x: PlottableValue<X>, y: PlottableValue<Y>) {} }
public struct LineMark: ChartContent { public init<X, Y>(x: PlottableValue<X>, y: PlottableValue<Y>) {} }
extension ChartContent { public func opacity(_ opacity: Double) -> some ChartContent { AnyChart() } }
