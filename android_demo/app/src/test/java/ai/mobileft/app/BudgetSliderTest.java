package ai.mobileft.app;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import ai.mobileft.Bundle;
import ai.mobileft.FakePlan;
import ai.mobileft.MemoryPlan;
import ai.mobileft.TrainOptions;
import ai.mobileft.Trainer;
import ai.mobileft.TrainingFiles;
import java.util.function.LongFunction;
import org.junit.Test;

public class BudgetSliderTest {
  private static final long SLACK_MB = BudgetSlider.SLACK_BYTES / 1_000_000;

  /** Takes all of a budget, but 200.1 MB at least, and half the time for double the budget. */
  private static final LongFunction<MemoryPlan> PLAN =
      budget -> FakePlan.of(Math.max(budget, 200_100_000), 100e6 / budget);

  @Test
  public void positionsLieBetweenSmallestAndLimit() {
    BudgetSlider slider = new BudgetSlider(1_001_900_000, PLAN);
    assertEquals(201 + SLACK_MB, slider.budgetMb(0));
    assertEquals(1001, slider.budgetMb(100));
    assertEquals((201 + SLACK_MB + 1001) / 2, slider.budgetMb(50));
    for (int i = 1; i <= 100; ++i) assertTrue(slider.budgetMb(i) > slider.budgetMb(i - 1));
  }

  @Test
  public void smallDeviceHasOneBudget() {
    BudgetSlider slider = new BudgetSlider(100_000_000, PLAN);
    for (int i = 0; i <= 100; ++i) assertEquals(201 + SLACK_MB, slider.budgetMb(i));
  }

  @Test
  public void describesWhatThePlanSays() {
    assertEquals("250 MB: 0.4 s per step, 200 steps in 80 s", describe(250, 200));
    assertEquals("500 MB: 0.2 s per step, 200 steps in 40 s", describe(500, 200));
    assertEquals("300 MB: 0.33 s per step, 300 steps in 100 s", describe(300, 300));
    assertEquals("250 MB: 0.4 s per step, 1000 steps in 6.7 min", describe(250, 1000));
    assertEquals("250 MB: 0.4 s per step, 100000 steps in 11 h", describe(250, 100000));
  }

  private static String describe(long limitMb, int steps) {
    return new BudgetSlider(limitMb * 1_000_000, PLAN).describe(100, steps);
  }

  @Test
  public void tellsWhereTheSlackIsGone() {
    long[] grown = {0};
    BudgetSlider slider = new BudgetSlider(0, budget -> FakePlan.of(200_100_000 + grown[0], 1));
    grown[0] = BudgetSlider.SLACK_BYTES + 900_001;
    assertEquals(
        (201 + SLACK_MB) + " MB: too small now; training needs " + (202 + SLACK_MB) + " MB",
        slider.describe(0, 1));
    grown[0] = BudgetSlider.SLACK_BYTES;
    assertEquals((201 + SLACK_MB) + " MB: 1 s per step, 1 steps in 1 s", slider.describe(0, 1));
  }

  /** Real plans: what the slider says works does, at both ends. */
  @Test
  public void trainsWithinWhatItSays() {
    TrainOptions options = Scratch.options(2);
    BudgetSlider slider;
    try (Bundle bundle = Bundle.open(Scratch.BUNDLE)) {
      slider =
          new BudgetSlider(
              4_000_000_000L,
              budget -> {
                options.set("budget", Long.toString(budget));
                return bundle.plan(options);
              });
      assertTrue(slider.budgetMb(0) > SLACK_MB + 10 && slider.budgetMb(0) < 2000);
      String text = slider.describe(0, 200);
      assertTrue(text, text.matches(slider.budgetMb(0) + " MB: [0-9.]+ s per step, 200 steps in [0-9.]+ s"));
    }
    for (int position : new int[] {0, 100}) {
      options.set("budget", slider.budgetMb(position) + "MB");
      try (Trainer trainer =
          Trainer.open(new TrainingFiles(Scratch.BUNDLE, Scratch.tokens(), Scratch.fresh("out")), options)) {
        trainer.run(null);
      }
    }
  }
}
