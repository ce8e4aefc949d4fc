package ai.mobileft;

/** The loss of an adapter over a token file. */
public final class Evaluation {
  private final double loss;
  private final long targets;

  Evaluation(double[] values) {
    this.loss = values[0];
    this.targets = (long) values[1];
  }

  /** The mean loss over the targets. Its exponential is the perplexity. */
  public double getLoss() {
    return loss;
  }

  /** The number of targets, the tokens that count in the loss. */
  public long getTargets() {
    return targets;
  }
}
