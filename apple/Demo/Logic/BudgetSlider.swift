import Foundation
import MobileFT

/// Positions of a slider, 0 to 1, as budgets between the smallest that works and the device's limit.
///
/// A plan counts the whole process as it is now. So the smallest budget is its plan, and what the app may grow by until
/// the training.
public struct BudgetSlider: Sendable {
  static let slackMB = 32.0

  let smallestMB: Double, limitMB: Double

  /// `smallestPlanMB` is the plan for a budget that is too small, which is the smallest one. If the limit is below it, all
  /// positions give the smallest budget.
  init(smallestPlanMB: Double, limitMB: Double) {
    smallestMB = (smallestPlanMB + Self.slackMB).rounded(.up)
    self.limitMB = max(smallestMB, limitMB)
  }

  /// The budget of a position in whole MB.
  func budgetMB(_ position: Double) -> Int { Int(smallestMB + (limitMB - smallestMB) * position) }

  /// Text such as "300 MB: 0.4 s per step, 200 steps in 80 s", for the plan of a position's budget.
  func describe(_ position: Double, steps: Int, plan: MemoryPlan) -> String {
    let budget = budgetMB(position)
    if plan.plannedMB > Double(budget) {  // this process has grown by more than the slack
      return "\(budget) MB: too small now; training needs \(Int(plan.plannedMB) + 1) MB"
    }
    let whole = Self.time(plan.stepSeconds * Double(steps))
    return "\(budget) MB: \(Self.time(plan.stepSeconds)) per step, \(steps) steps in \(whole)"
  }

  /// A time with two digits.
  static func time(_ seconds: Double) -> String {
    if seconds < 120 { return "\(rounded(seconds)) s" }
    if seconds < 120 * 60 { return "\(rounded(seconds / 60)) min" }
    return "\(rounded(seconds / 3600)) h"
  }

  private static func rounded(_ value: Double) -> String {
    if value <= 0 { return "0" }
    let digits = max(0, 1 - Int(floor(log10(value))))
    return String(format: "%.\(digits)f", value)
  }
}
