package ai.mobileft.app;

import ai.mobileft.MemoryPlan;
import java.math.BigDecimal;
import java.math.MathContext;
import java.util.function.LongFunction;

/**
 * Maps a slider's positions, 0 to 100, to budgets between the smallest that works and the device's limit. Plans come
 * from {@link ai.mobileft.Bundle#plan}, which takes a moment and must not be called while a training runs.
 *
 * <p>A plan counts the whole process in its current state, including Java's heap, which grows until the training
 * starts. So the smallest budget is its plan plus {@link #SLACK_BYTES}.
 */
public final class BudgetSlider {
  /** Allowance for the app's own growth between plan and training: windows, and uncollected garbage. */
  static final long SLACK_BYTES = 32_000_000;

  private static final long MB = 1_000_000;
  private static final int LAST_POSITION = 100;

  private final long smallestMb;
  private final long limitMb;
  private final LongFunction<MemoryPlan> plan;

  /**
   * @param limitBytes the maximum memory of this process. If it is below the smallest budget that works, all positions
   *     give that budget
   * @param plan returns the plan for a budget in bytes
   */
  public BudgetSlider(long limitBytes, LongFunction<MemoryPlan> plan) {
    long least = plan.apply(1).getTotalBytes() + SLACK_BYTES; // if a budget is too small, the plan is the smallest
    this.smallestMb = (least + MB - 1) / MB;
    this.limitMb = Math.max(smallestMb, limitBytes / MB);
    this.plan = plan;
  }

  /** The budget of a position, in MB of 10^6 bytes. */
  public long budgetMb(int position) {
    return smallestMb + (limitMb - smallestMb) * position / LAST_POSITION;
  }

  /** Returns text such as "300 MB: 0.4 s per step, 200 steps in 80 s". */
  public String describe(int position, int steps) {
    long budgetMb = budgetMb(position);
    MemoryPlan plan = this.plan.apply(budgetMb * MB);
    if (plan.getTotalBytes() > budgetMb * MB) { // this process has grown by more than the slack
      return budgetMb + " MB: too small now; training needs " + (plan.getTotalBytes() / MB + 1) + " MB";
    }
    double seconds = plan.getStepSeconds();
    return budgetMb + " MB: " + time(seconds) + " per step, " + steps + " steps in " + time(seconds * steps);
  }

  /** Formats an estimated time with two digits. */
  private static String time(double seconds) {
    if (seconds < 120) return rounded(seconds) + " s";
    if (seconds < 120 * 60) return rounded(seconds / 60) + " min";
    return rounded(seconds / 3600) + " h";
  }

  private static String rounded(double value) {
    return new BigDecimal(value).round(new MathContext(2)).stripTrailingZeros().toPlainString();
  }
}
