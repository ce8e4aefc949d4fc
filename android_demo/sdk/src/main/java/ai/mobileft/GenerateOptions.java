package ai.mobileft;

/** Options of chats and of generation: "max_tokens", "temp" and others. */
public final class GenerateOptions extends Options {
  public GenerateOptions() {
    super(Native.GENERATE);
  }
}
