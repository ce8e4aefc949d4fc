package ai.mobileft;

import java.io.File;
import java.util.List;

/**
 * Training data in a .jsonl file, which can grow while the user types. A row is on disk when its call returns. If a
 * call fails, for example because the disk is full, all earlier rows are still there. It may be used while a {@link
 * Trainer} runs.
 *
 * <p>No argument may be null. Methods that add a row throw {@link MobileFtException} if the row is not valid or the
 * model's chat template cannot render it.
 */
public final class Dataset implements AutoCloseable {
  private final Handle handle;

  private Dataset(Handle handle) {
    this.handle = handle;
  }

  /**
   * Opens rows for the model of a bundle.
   *
   * @param bundleFolder the bundle whose tokenizer and chat template are used
   * @param rowsFile the .jsonl file; it need not exist
   * @throws MobileFtException if a file is missing or damaged
   */
  public static Dataset open(File bundleFolder, File rowsFile) {
    byte[] bundle = Utf8.path("bundleFolder", bundleFolder);
    byte[] rows = Utf8.path("rowsFile", rowsFile);
    return new Dataset(new Handle("Dataset", () -> Native.openDataset(bundle, rows), Native::closeDataset));
  }

  /** Adds a chat. The assistant's messages are learned. */
  public void add(List<Message> messages) {
    byte[][] utf8 = Message.utf8(messages);
    handle.run("add", dataset -> Native.addChat(dataset, utf8));
  }

  /** Adds a prompt and its completion, which is learned. With a chat template they become a question and its answer. */
  public void addPair(String prompt, String completion) {
    byte[] utf8Prompt = Utf8.bytes("prompt", prompt);
    byte[] utf8Completion = Utf8.bytes("completion", completion);
    handle.run("addPair", dataset -> Native.addPair(dataset, utf8Prompt, utf8Completion));
  }

  /** Adds plain text. All of it is learned. */
  public void addText(String text) {
    byte[] utf8 = Utf8.bytes("text", text);
    handle.run("addText", dataset -> Native.addText(dataset, utf8));
  }

  /** Adds any row as one JSON object, for example with a "weight", a preference, or an answer with a "label". */
  public void addRow(String json) {
    byte[] utf8 = Utf8.bytes("json", json);
    handle.run("addRow", dataset -> Native.addRow(dataset, utf8));
  }

  /** The number of rows. */
  public long getRows() {
    return handle.ask(Native::rows);
  }

  /**
   * Tokenizes all rows, for a {@link Trainer} with the same "seq_len", "seed" and "loss".
   *
   * @throws MobileFtException if there are no rows, or the file cannot be written
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
