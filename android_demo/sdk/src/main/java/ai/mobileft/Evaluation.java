package ai.mobileft;

/** How well an adapter foretells a token file. */
public final class Evaluation {
  private final double loss;
  private final long targets;

  Evaluation(double[] values) {
    this.loss = values[0];
    this.targets = (long) values[1];
  }

  /** Mean over the targets; its exponential is the perplexity. */
  public double getLoss() {
    return loss;
  }

  /** Tokens that count. */
  public long getTargets() {
    return targets;
  }
}
