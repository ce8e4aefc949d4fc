package ai.mobileft;

import java.nio.LongBuffer;

/**
 * The C API, runtime/c_api/mobile_ft.h, called by src/main/cpp/mobile_ft_jni.cpp. Texts and paths are UTF-8. Options
 * are names and values in turn, and messages are roles and contents in turn. Objects are pointers; {@link Handle}
 * ensures that they are open, and {@link Turn} that each takes one call at a time.
 */
final class Native {
  static {
    System.loadLibrary("mobile_ft_jni");
  }

  private Native() {}

  /** Receives UTF-8 text, and returns whether to continue. */
  interface BytesListener {
    boolean onBytes(byte[] utf8);
  }

  /** The exception for a status other than MFT_OK; native code calls this. */
  static RuntimeException exception(int status, byte[] message) {
    String text = Utf8.text(message);
    switch (status) {
      case 1:
        return new IllegalArgumentException(text);
      case 3:
        return new TrainingStoppedException(text);
      case 4:
        return new BusyException(text);
      default:
        return new MobileFtException(text);
    }
  }

  /** Kinds of options, as {@link Options} passes them. */
  static final int TRAIN = 0;

  static final int GENERATE = 1;
  static final int LEARN = 2;

  static native void checkOption(int kind, byte[] name, byte[] value);

  /** Null if there is no such option. */
  static native byte[] defaultOption(int kind, byte[] name);

  static native long openTraining(
      byte[] bundle, byte[] data, byte[] valid, byte[] adapter, byte[] out, boolean resume, byte[][] options);

  static native void closeTraining(long training);

  static native void runTraining(long training, BytesListener listener);

  static native boolean stepTraining(long training, BytesListener listener);

  static native void cancelTraining(long training);

  static native void trustKey(byte[] pem);

  static native long openBundle(byte[] folder);

  static native void closeBundle(long bundle);

  static native long vocabSize(long bundle);

  static native long maxSeqLen(long bundle);

  static native byte[] plan(long bundle, byte[][] options);

  /** Returns loss and targets. */
  static native double[] evaluate(long bundle, byte[] adapter, byte[] tokenFile);

  /** {@code prompt} is a direct buffer with {@code count} tokens from {@code position} on. */
  static native void generate(
      long bundle,
      byte[] adapter,
      LongBuffer prompt,
      int position,
      int count,
      byte[][] options,
      TokenListener listener);

  static native void chat(long bundle, byte[] adapter, byte[][] messages, byte[][] options, BytesListener listener);

  static native void chatJson(long bundle, byte[] adapter, byte[] json, byte[][] options, BytesListener listener);

  static native void cancelBundle(long bundle);

  static native long openDataset(byte[] bundle, byte[] rows);

  static native void closeDataset(long dataset);

  static native void addChat(long dataset, byte[][] messages);

  static native void addPair(long dataset, byte[] prompt, byte[] completion);

  static native void addText(long dataset, byte[] text);

  static native void addRow(long dataset, byte[] json);

  static native long rows(long dataset);

  /** Returns the members of mft_dataset_stats, in their order. */
  static native long[] writeTokens(long dataset, byte[][] options, byte[] tokenFile);

  static native long openLearner(byte[] bundle, byte[] folder);

  static native void closeLearner(long learner);

  static native void learn(long learner, byte[] rows, byte[][] options, BytesListener listener);

  static native void forget(long learner, byte[][] ids, BytesListener listener);

  static native void rollBack(long learner, long version);

  /** Returns the "done" event. */
  static native byte[] learnerState(long learner);

  static native void cancelLearner(long learner);

  /** Returns the members of mft_memory, in their order. */
  static native long[] processMemory();
}
