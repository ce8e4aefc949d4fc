package ai.mobileft;

import java.io.File;
import java.util.List;

/**
 * Training data in a .jsonl file, which grows as the user types. A row is on disk when its call returns; where one
 * fails, be it that the disk is full, all rows before it are there. It may be used while a {@link Trainer} runs.
 *
 * <p>Nothing may be null. Methods that add throw {@link MobileFtException} for a row that no model could learn from, or
 * that the model's chat template has no way to render.
 */
public final class Dataset implements AutoCloseable {
  private final Handle handle;

  private Dataset(Handle handle) {
    this.handle = handle;
  }

  /**
   * Opens rows for the model of a bundle.
   *
   * @param bundleFolder whose tokenizer and chat template count
   * @param rowsFile need not exist yet
   * @throws MobileFtException where a file is missing or damaged
   */
  public static Dataset open(File bundleFolder, File rowsFile) {
    byte[] bundle = Utf8.path("bundleFolder", bundleFolder);
    byte[] rows = Utf8.path("rowsFile", rowsFile);
    return new Dataset(new Handle("Dataset", new Turn(), () -> Native.openDataset(bundle, rows), Native::closeDataset));
  }

  /** Adds a dialogue, of which the assistant's messages are learned. */
  public void add(List<Message> messages) {
    byte[][] utf8 = Message.utf8(messages);
    handle.run("add", dataset -> Native.addChat(dataset, utf8));
  }

  /** Adds a prompt and its completion, which is learned: a question and its answer where there is a chat template. */
  public void addPair(String prompt, String completion) {
    byte[] utf8Prompt = Utf8.bytes("prompt", prompt);
    byte[] utf8Completion = Utf8.bytes("completion", completion);
    handle.run("addPair", dataset -> Native.addPair(dataset, utf8Prompt, utf8Completion));
  }

  /** Adds plain text, all of it learned. */
  public void addText(String text) {
    byte[] utf8 = Utf8.bytes("text", text);
    handle.run("addText", dataset -> Native.addText(dataset, utf8));
  }

  /** Adds any row, as one JSON object: with a "weight", say, or a preference for the loss "dpo". */
  public void addRow(String json) {
    byte[] utf8 = Utf8.bytes("json", json);
    handle.run("addRow", dataset -> Native.addRow(dataset, utf8));
  }

  /** How many rows there are. */
  public long getRows() {
    return handle.call("getRows", Native::rows);
  }

  /**
   * Writes all rows as tokens, for a {@link Trainer} with the same options: "seq_len", "seed" and "loss" count.
   *
   * @throws MobileFtException where there are no rows, or the file cannot be written
   */
  public DatasetStats writeTokens(TrainOptions options, File tokenFile) {
    byte[][] utf8 = options.utf8();
    byte[] path = Utf8.path("tokenFile", tokenFile);
    return new DatasetStats(handle.call("writeTokens", dataset -> Native.writeTokens(dataset, utf8, path)));
  }

  @Override
  public void close() {
    handle.close();
  }
}
