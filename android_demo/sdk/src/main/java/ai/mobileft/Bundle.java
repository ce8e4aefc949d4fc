package ai.mobileft;

import java.io.File;

/** An open training bundle, to plan the memory of training and to evaluate adapters. */
public final class Bundle implements AutoCloseable {
  private final Handle handle;

  private Bundle(Handle handle) {
    this.handle = handle;
  }

  /**
   * Makes this process accept only bundles that {@code mobile-ft export --sign} signed with this key. Apps that
   * download bundles should call it before anything else, with a key that is part of the app. Another call replaces the
   * key; no call removes it.
   *
   * @param publicKey an Ed25519 public key in PEM, as text
   * @throws MobileFtException if it is not such a key
   */
  public static void trust(String publicKey) {
    Native.trustKey(Utf8.bytes("publicKey", publicKey));
  }

  /**
   * Reads the description of the bundle. Weights are verified when they are first used.
   *
   * @throws MobileFtException if a file is missing or damaged
   */
  public static Bundle open(File folder) {
    byte[] path = Utf8.path("folder", folder);
    return new Bundle(new Handle("Bundle", () -> Native.openBundle(path), Native::closeBundle));
  }

  /** The size of the vocabulary. Token ids are from 0 to this size - 1. */
  public long getVocabSize() {
    return handle.ask(Native::vocabSize);
  }

  /** The maximum number of tokens of a sequence, including prompt and answer. */
  public long getMaxSeqLen() {
    return handle.ask(Native::maxSeqLen);
  }

  /**
   * Plans the memory of training with these options.
   *
   * @throws MobileFtException if an option is wrong for this bundle
   */
  public MemoryPlan plan(TrainOptions options) {
    byte[][] utf8 = options.utf8();
    return new MemoryPlan(Utf8.text(handle.call("plan", bundle -> Native.plan(bundle, utf8))));
  }

  /**
   * Computes the loss over a token file.
   *
   * @param adapterFolder null for the bundle's initial adapter. It is read at every call, so a training's latest
   *     adapter is used.
   * @throws MobileFtException if a file is missing or damaged
   */
  public Evaluation evaluate(File adapterFolder, File tokenFile) {
    byte[] adapter = Utf8.pathOrNull("adapterFolder", adapterFolder);
    byte[] tokens = Utf8.path("tokenFile", tokenFile);
    return new Evaluation(handle.call("evaluate", bundle -> Native.evaluate(bundle, adapter, tokens)));
  }

  @Override
  public void close() {
    handle.close();
  }
}
