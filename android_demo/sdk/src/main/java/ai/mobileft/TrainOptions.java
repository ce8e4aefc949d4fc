package ai.mobileft;

/** Options of training, of its plan and of its token files: "steps", "lr", "seq_len", "budget" and others. */
public final class TrainOptions extends Options {
  public TrainOptions() {
    super(Native.TRAIN);
  }
}
