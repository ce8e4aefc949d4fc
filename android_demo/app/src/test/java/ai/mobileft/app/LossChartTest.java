package ai.mobileft.app;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.Test;

public class LossChartTest {
  @Test
  public void emptyAtFirst() {
    LossChart chart = new LossChart(4);
    assertTrue(chart.getPoints().isEmpty());
    assertTrue(Double.isNaN(chart.getLeastLoss()) && Double.isNaN(chart.getMostLoss()));
    assertEquals(0, chart.getLeastMemoryBytes());
    assertEquals(0, chart.getMostMemoryBytes());
  }

  /** Every point is what a loop over its steps makes of them. */
  @Test
  public void pointsAreThoseOfAllSteps() {
    for (int most : new int[] {2, 4, 10}) {
      Random random = new Random(most);
      LossChart chart = new LossChart(most);
      List<Double> losses = new ArrayList<>();
      List<Long> memory = new ArrayList<>();
      int perPoint = 1;
      for (int step = 1; step <= 200; ++step) {
        losses.add(random.nextDouble());
        memory.add((long) random.nextInt(1000));
        chart.add(step, losses.get(step - 1), memory.get(step - 1));
        if (step > most * perPoint) perPoint *= 2;

        List<LossChart.Point> points = chart.getPoints();
        assertEquals((step + perPoint - 1) / perPoint, points.size());
        assertTrue(points.size() <= most);
        double least = 9, highest = 0;
        for (int p = 0; p < points.size(); ++p) {
          int begin = p * perPoint, end = Math.min(step, begin + perPoint);
          double sum = 0;
          long peak = 0;
          for (int s = begin; s < end; ++s) {
            sum += losses.get(s);
            peak = Math.max(peak, memory.get(s));
          }
          LossChart.Point point = points.get(p);
          assertEquals(end, point.getStep());
          assertEquals(sum / (end - begin), point.getLoss(), 1e-12);
          assertEquals(peak, point.getMemoryBytes());
          assertEquals(smoothed(losses.subList(0, end)), point.getSmoothedLoss(), 1e-12);
          least = Math.min(least, point.getLoss());
          highest = Math.max(highest, point.getLoss());
        }
        assertEquals(least, chart.getLeastLoss(), 0);
        assertEquals(highest, chart.getMostLoss(), 0);
      }
    }
  }

  /** Weights 1, 0.9, 0.81 .. from the last one back. */
  private static double smoothed(List<Double> losses) {
    double sum = 0, weights = 0;
    for (int age = 0; age < losses.size(); ++age) {
      double weight = Math.pow(0.9, age);
      sum += weight * losses.get(losses.size() - 1 - age);
      weights += weight;
    }
    return sum / weights;
  }

  @Test
  public void memoryHasItsAxis() {
    LossChart chart = new LossChart(10);
    for (long bytes : new long[] {300, 100, 200}) chart.add(chart.getPoints().size() + 1, 1, bytes);
    assertEquals(100, chart.getLeastMemoryBytes());
    assertEquals(300, chart.getMostMemoryBytes());
  }

  @Test
  public void repeatedStepsChangeNothing() {
    LossChart once = new LossChart(4), twice = new LossChart(4);
    for (int step = 1; step <= 9; ++step) {
      once.add(step, 1.0 / step, step);
      twice.add(step, 1.0 / step, step);
      if (step == 7) for (int again = 5; again <= 7; ++again) twice.add(again, 1.0 / again, again);
    }
    assertEquals(once.getPoints().size(), twice.getPoints().size());
    for (int i = 0; i < once.getPoints().size(); ++i) {
      LossChart.Point a = once.getPoints().get(i), b = twice.getPoints().get(i);
      assertEquals(a.getStep(), b.getStep());
      assertEquals(a.getLoss(), b.getLoss(), 0);
      assertEquals(a.getSmoothedLoss(), b.getSmoothedLoss(), 0);
    }
  }

  /** After a process was killed its chart begins in the middle. */
  @Test
  public void beginsAtAnyStep() {
    LossChart chart = new LossChart(2);
    for (int step = 100; step < 105; ++step) chart.add(step, step, 1);
    assertEquals(2, chart.getPoints().size());
    assertEquals(103, chart.getPoints().get(0).getStep());
    assertEquals(101.5, chart.getPoints().get(0).getLoss(), 1e-12);
    assertEquals(104, chart.getPoints().get(1).getStep());
  }

  @Test
  public void refusesOddNumbers() {
    for (int wrong : new int[] {-2, 0, 1, 3}) {
      assertThrows(IllegalArgumentException.class, () -> new LossChart(wrong));
    }
  }
}
