package ai.mobileft.app;

import java.util.ArrayList;
import java.util.List;

/**
 * A chart of loss and memory over a training of whatever length, in few points: where they would be too many, each two
 * become one. Any thread may call: the one that trains adds, and another one draws.
 */
public final class LossChart {
  /** One point: one step, or several that follow each other. */
  public static final class Point {
    private final long step;
    private final double loss;
    private final double smoothedLoss;
    private final long memoryBytes;

    Point(long step, double loss, double smoothedLoss, long memoryBytes) {
      this.step = step;
      this.loss = loss;
      this.smoothedLoss = smoothedLoss;
      this.memoryBytes = memoryBytes;
    }

    /** The last of its steps. */
    public long getStep() {
      return step;
    }

    /** The mean of its steps. */
    public double getLoss() {
      return loss;
    }

    /** As of its last step: a mean of all steps so far, in which older ones count less and less. */
    public double getSmoothedLoss() {
      return smoothedLoss;
    }

    /** The most of its steps, in bytes. */
    public long getMemoryBytes() {
      return memoryBytes;
    }

    /** This and what follows it, of so many steps each. */
    private Point and(Point next, int steps, int nextSteps) {
      double mean = (loss * steps + next.loss * nextSteps) / (steps + nextSteps);
      return new Point(next.step, mean, next.smoothedLoss, Math.max(memoryBytes, next.memoryBytes));
    }
  }

  /** What is left of a step's weight in the smoothed loss at the next one: about ten steps count. */
  private static final double DECAY = 0.9;

  private final int mostPoints;
  private final List<Point> points = new ArrayList<>();
  private int stepsPerPoint = 1;
  private int stepsOfLast = 0;
  private double weightedLosses = 0;
  private double weights = 0;

  /** {@code mostPoints} is even, 2 or more. */
  public LossChart(int mostPoints) {
    if (mostPoints < 2 || mostPoints % 2 != 0) {
      throw new IllegalArgumentException("mostPoints " + mostPoints + ": must be even, 2 or more");
    }
    this.mostPoints = mostPoints;
  }

  /** Adds a step. One that is there already changes nothing: a resumed training may repeat the last ones, all alike. */
  public synchronized void add(long step, double loss, long memoryBytes) {
    if (!points.isEmpty() && step <= last().step) return;
    weightedLosses = DECAY * weightedLosses + loss;
    weights = DECAY * weights + 1;
    Point point = new Point(step, loss, weightedLosses / weights, memoryBytes);
    if (!points.isEmpty() && stepsOfLast < stepsPerPoint) {
      points.set(points.size() - 1, last().and(point, stepsOfLast, 1));
      ++stepsOfLast;
      return;
    }
    if (points.size() == mostPoints) halve();
    points.add(point);
    stepsOfLast = 1;
  }

  /** A copy, in the order of steps. */
  public synchronized List<Point> getPoints() {
    return new ArrayList<>(points);
  }

  /** The lowest loss of a point; NaN where there is none. */
  public synchronized double getLeastLoss() {
    return points.stream().mapToDouble(Point::getLoss).min().orElse(Double.NaN);
  }

  /** The highest loss of a point; NaN where there is none. */
  public synchronized double getMostLoss() {
    return points.stream().mapToDouble(Point::getLoss).max().orElse(Double.NaN);
  }

  /** In bytes; 0 where there is no point. */
  public synchronized long getLeastMemoryBytes() {
    return points.stream().mapToLong(Point::getMemoryBytes).min().orElse(0);
  }

  /** In bytes; 0 where there is no point. */
  public synchronized long getMostMemoryBytes() {
    return points.stream().mapToLong(Point::getMemoryBytes).max().orElse(0);
  }

  private Point last() {
    return points.get(points.size() - 1);
  }

  /** Makes one point of each two, all of which are whole. */
  private void halve() {
    for (int i = 0; i < points.size(); ++i) {
      points.set(i, points.get(i).and(points.remove(i + 1), stepsPerPoint, stepsPerPoint));
    }
    stepsPerPoint *= 2;
  }
}
