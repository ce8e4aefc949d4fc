package ai.mobileft.app;

import ai.mobileft.MemoryPlan;
import java.math.BigDecimal;
import java.math.MathContext;
import java.util.function.LongFunction;

/**
 * A slider's positions, 0 to 100, as budgets between the smallest that works and what the device has. Plans come from
 * {@link ai.mobileft.Bundle#plan}, which takes a moment and must not be asked while a training runs.
 *
 * <p>A plan counts all of the process as it is now, Java's heap included, which grows until the training begins. So the
 * smallest budget is by {@link #SLACK_BYTES} more than its plan.
 */
public final class BudgetSlider {
  /** For what the app itself takes between plan and training: windows, and garbage that is not collected yet. */
  static final long SLACK_BYTES = 32_000_000;

  private static final long MB = 1_000_000;
  private static final int LAST_POSITION = 100;

  private final long smallestMb;
  private final long limitMb;
  private final LongFunction<MemoryPlan> plan;

  /**
   * @param limitBytes the most that this process may take; where that is below the smallest budget that works, all
   *     positions are that one
   * @param plan of a budget in bytes
   */
  public BudgetSlider(long limitBytes, LongFunction<MemoryPlan> plan) {
    long least = plan.apply(1).getTotalBytes() + SLACK_BYTES; // where a budget is too small the plan is the smallest
    this.smallestMb = (least + MB - 1) / MB;
    this.limitMb = Math.max(smallestMb, limitBytes / MB);
    this.plan = plan;
  }

  /** The budget of a position, in MB of 10^6 bytes. */
  public long budgetMb(int position) {
    return smallestMb + (limitMb - smallestMb) * position / LAST_POSITION;
  }

  /** Such as "300 MB: 0.4 s a step, 200 steps in 80 s". */
  public String describe(int position, int steps) {
    long budgetMb = budgetMb(position);
    MemoryPlan plan = this.plan.apply(budgetMb * MB);
    if (plan.getTotalBytes() > budgetMb * MB) { // this process took more than the slack since
      return budgetMb + " MB: too little by now, training needs " + (plan.getTotalBytes() / MB + 1) + " MB";
    }
    double seconds = plan.getStepSeconds();
    return budgetMb + " MB: " + time(seconds) + " a step, " + steps + " steps in " + time(seconds * steps);
  }

  /** In two digits, since more are not known. */
  private static String time(double seconds) {
    if (seconds < 120) return rounded(seconds) + " s";
    if (seconds < 120 * 60) return rounded(seconds / 60) + " min";
    return rounded(seconds / 3600) + " h";
  }

  private static String rounded(double value) {
    return new BigDecimal(value).round(new MathContext(2)).stripTrailingZeros().toPlainString();
  }
}
