package ai.mobileft;

/** Options of a night of a {@link Learner}: "held_out", "replay", "general_bound" and those of {@link TrainOptions}. */
public final class LearnOptions extends Options {
  public LearnOptions() {
    super(Native.LEARN);
  }
}
