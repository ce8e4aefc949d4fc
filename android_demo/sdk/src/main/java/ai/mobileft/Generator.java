package ai.mobileft;

import java.io.File;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.util.List;
import java.util.Objects;
import java.util.function.Consumer;

/**
 * Answers with the model of a bundle and an adapter. The four adapters that were used last stay in memory. An adapter is
 * read again if its files have changed, so a training's latest adapter is used. If a prompt begins with the last prompt
 * and its answer, as in a chat, only the rest is computed. All of this memory is freed by {@link #close}.
 *
 * <p>An exception that a listener throws ends the generation and reaches the caller.
 */
public final class Generator implements AutoCloseable {
  private final Handle handle;
  private volatile byte[] adapter;

  private Generator(Handle handle, byte[] adapter) {
    this.handle = handle;
    this.adapter = adapter;
  }

  /**
   * Opens the bundle.
   *
   * @param adapterFolder null for the bundle's initial adapter
   * @throws MobileFtException if a file is missing or damaged
   */
  public static Generator open(File bundleFolder, File adapterFolder) {
    byte[] bundle = Utf8.path("bundleFolder", bundleFolder);
    byte[] adapter = Utf8.pathOrNull("adapterFolder", adapterFolder);
    return new Generator(new Handle("Generator", () -> Native.openBundle(bundle), Native::closeBundle), adapter);
  }

  /**
   * Answers with another adapter from the next call on. A change to one that was used before takes less than a
   * millisecond.
   *
   * @param adapterFolder null for the bundle's initial adapter. It is read by the next call, which fails if the adapter
   *     cannot be used.
   */
  public void useAdapter(File adapterFolder) {
    adapter = Utf8.pathOrNull("adapterFolder", adapterFolder);
  }

  /**
   * Answers the last of the messages, up to the model's end tokens, the option "max_tokens" or the bundle's maximum
   * length. The result does not tell which of them ended the answer.
   *
   * @param listener receives the answer in pieces of whole characters; may be null
   * @return the whole answer
   * @throws MobileFtException if the model has no chat template, the template rejects the messages, or a file is
   *     missing or damaged
   */
  public String chat(List<Message> messages, GenerateOptions options, TextListener listener) {
    byte[][] utf8 = Message.utf8(messages);
    byte[][] optionsUtf8 = options.utf8();
    return answer(
        listener,
        pieces -> handle.run("chat", bundle -> Native.chat(bundle, adapter, utf8, optionsUtf8, pieces)));
  }

  /**
   * The same for a chat as JSON: {@code {"messages": [...], "tools": [...]}}, as in rows of training data. Messages may
   * have "tool_calls", and content in parts of text.
   */
  public String chatJson(String json, GenerateOptions options, TextListener listener) {
    byte[] utf8 = Utf8.bytes("json", json);
    byte[][] optionsUtf8 = options.utf8();
    return answer(
        listener,
        pieces -> handle.run("chat", bundle -> Native.chatJson(bundle, adapter, utf8, optionsUtf8, pieces)));
  }

  /** Runs {@code chat} and returns its text. */
  private static String answer(TextListener listener, Consumer<Native.BytesListener> chat) {
    StringBuilder answer = new StringBuilder();
    chat.accept(
        bytes -> {
          String text = Utf8.text(bytes);
          answer.append(text);
          return listener == null || listener.onText(text);
        });
    return answer.toString();
  }

  /**
   * Continues a prompt of tokens with "max_tokens" tokens, or up to the bundle's maximum length. It does not stop at
   * the model's end tokens; the listener can.
   *
   * @param prompt a direct buffer in the native byte order, from its position to its limit, neither of which changes
   * @throws IllegalArgumentException if the buffer is not such a buffer
   * @throws MobileFtException if the prompt is empty, too long or has an unknown token, "chat_template_kwargs" is set,
   *     or a file is missing or damaged
   */
  public void generate(LongBuffer prompt, GenerateOptions options, TokenListener listener) {
    if (!prompt.isDirect()) throw new IllegalArgumentException("prompt: must be a direct buffer");
    if (prompt.order() != ByteOrder.nativeOrder()) {
      throw new IllegalArgumentException("prompt: must have the byte order ByteOrder.nativeOrder()");
    }
    Objects.requireNonNull(listener, "listener");
    byte[][] utf8 = options.utf8();
    handle.run(
        "generate",
        bundle ->
            Native.generate(bundle, adapter, prompt, prompt.position(), prompt.remaining(), utf8, listener));
  }

  /**
   * Ends the answer in progress after its current token or, while the prompt is read, its current piece of 256 tokens.
   * The call returns normally. Can be called from any thread.
   */
  public void cancel() {
    handle.ifOpen(Native::cancelBundle);
  }

  @Override
  public void close() {
    handle.close();
  }
}
