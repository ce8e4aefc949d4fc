package ai.mobileft.app;

import java.util.ArrayList;
import java.util.List;

/**
 * A chart of loss and memory for a training of any length, with a limited number of points: if there are too many,
 * pairs of points are merged. It can be used from any thread; the training thread adds points, and another thread
 * draws.
 */
public final class LossChart {
  /** A point: one step, or several consecutive steps. */
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

    /** Its last step. */
    public long getStep() {
      return step;
    }

    /** The mean loss of its steps. */
    public double getLoss() {
      return loss;
    }

    /** The exponential moving average of the loss at its last step. */
    public double getSmoothedLoss() {
      return smoothedLoss;
    }

    /** The maximum memory of its steps, in bytes. */
    public long getMemoryBytes() {
      return memoryBytes;
    }

    /** Merges this point with the next one, each of this many steps. */
    private Point and(Point next, int steps, int nextSteps) {
      double mean = (loss * steps + next.loss * nextSteps) / (steps + nextSteps);
      return new Point(next.step, mean, next.smoothedLoss, Math.max(memoryBytes, next.memoryBytes));
    }
  }

  /** Decay of the moving average per step, which averages about ten steps. */
  private static final double DECAY = 0.9;

  private final int mostPoints;
  private final List<Point> points = new ArrayList<>();
  private int stepsPerPoint = 1;
  private int stepsOfLast = 0;
  private double weightedLosses = 0;
  private double weights = 0;

  /** {@code mostPoints} must be even and at least 2. */
  public LossChart(int mostPoints) {
    if (mostPoints < 2 || mostPoints % 2 != 0) {
      throw new IllegalArgumentException("mostPoints " + mostPoints + ": must be even and at least 2");
    }
    this.mostPoints = mostPoints;
  }

  /** Adds a step. Ignores steps that were already added, because a resumed training repeats the last steps exactly. */
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

  /** Returns a copy of the points, in the order of steps. */
  public synchronized List<Point> getPoints() {
    return new ArrayList<>(points);
  }

  /** The lowest loss of a point; NaN if there is none. */
  public synchronized double getLeastLoss() {
    return points.stream().mapToDouble(Point::getLoss).min().orElse(Double.NaN);
  }

  /** The highest loss of a point; NaN if there is none. */
  public synchronized double getMostLoss() {
    return points.stream().mapToDouble(Point::getLoss).max().orElse(Double.NaN);
  }

  /** In bytes; 0 if there is no point. */
  public synchronized long getLeastMemoryBytes() {
    return points.stream().mapToLong(Point::getMemoryBytes).min().orElse(0);
  }

  /** In bytes; 0 if there is no point. */
  public synchronized long getMostMemoryBytes() {
    return points.stream().mapToLong(Point::getMemoryBytes).max().orElse(0);
  }

  private Point last() {
    return points.get(points.size() - 1);
  }

  /** Merges each pair of points, all of which are complete. */
  private void halve() {
    for (int i = 0; i < points.size(); ++i) {
      points.set(i, points.get(i).and(points.remove(i + 1), stepsPerPoint, stepsPerPoint));
    }
    stepsPerPoint *= 2;
  }
}
