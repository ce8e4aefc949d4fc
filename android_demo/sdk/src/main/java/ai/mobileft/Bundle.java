package ai.mobileft;

import java.io.File;

/** A training bundle open to be asked about: what training takes, and how well an adapter does. */
public final class Bundle implements AutoCloseable {
  private final Handle handle;

  private Bundle(Handle handle) {
    this.handle = handle;
  }

  /**
   * From now on this process uses bundles only where {@code mobile-ft export --sign} signed them with this key. For apps
   * that download bundles: call it before anything else, with a key that is part of the app. Another call trusts another
   * key in its place, none takes it back.
   *
   * @param publicKey an Ed25519 public key in PEM, as text
   * @throws MobileFtException where it is no such key
   */
  public static void trust(String publicKey) {
    Native.trustKey(Utf8.bytes("publicKey", publicKey));
  }

  /**
   * Reads what describes the bundle; weights are verified as they are first used.
   *
   * @throws MobileFtException where a file is missing or damaged
   */
  public static Bundle open(File folder) {
    byte[] path = Utf8.path("folder", folder);
    return new Bundle(new Handle("Bundle", Turn.COMPUTING, () -> Native.openBundle(path), Native::closeBundle));
  }

  /** Tokens are 0 .. this - 1. */
  public long getVocabSize() {
    return handle.call("getVocabSize", Native::vocabSize);
  }

  /** Most tokens of a sequence, prompt and answer together. */
  public long getMaxSeqLen() {
    return handle.call("getMaxSeqLen", Native::maxSeqLen);
  }

  /**
   * The memory that training with these options will take.
   *
   * @throws MobileFtException where an option is wrong for this bundle
   */
  public MemoryPlan plan(TrainOptions options) {
    byte[][] utf8 = options.utf8();
    return new MemoryPlan(Utf8.text(handle.call("plan", bundle -> Native.plan(bundle, utf8))));
  }

  /**
   * The loss over all of a token file.
   *
   * @param adapterFolder null for the bundle's initial adapter. It is read at every call, so what a training has just
   *     saved counts.
   * @throws MobileFtException where a file is missing or damaged
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
