package ai.mobileft;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.File;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.junit.Test;
import org.junit.function.ThrowingRunnable;

/** Each mistake has its exception, with a message that says what was wrong, and nothing crashes. */
public class MistakesTest {
  private static void fails(Class<? extends Throwable> kind, String part, ThrowingRunnable body) {
    Throwable thrown = assertThrows(kind, body);
    assertEquals(kind, thrown.getClass());
    assertTrue(thrown.getMessage(), thrown.getMessage().contains(part));
    assertFalse(thrown.getMessage(), thrown.getMessage().contains("\n"));
  }

  private static void refused(String part, ThrowingRunnable body) {
    fails(MobileFtException.class, part, body);
  }

  private static void wrong(String part, ThrowingRunnable body) {
    fails(IllegalArgumentException.class, part, body);
  }

  private static void isNull(String name, ThrowingRunnable body) {
    fails(NullPointerException.class, name, body);
  }

  private static void train(File bundle, File tokens, File out, TrainOptions options) {
    try (Trainer trainer = Trainer.open(new TrainingFiles(bundle, tokens, out), options)) {
      trainer.run(null);
    }
  }

  private static Generator generator() {
    return Generator.open(Scratch.BUNDLE, null);
  }

  private static LongBuffer direct(long... tokens) {
    LongBuffer buffer = ByteBuffer.allocateDirect(8 * tokens.length).order(ByteOrder.nativeOrder()).asLongBuffer();
    buffer.put(tokens);
    buffer.flip();
    return buffer;
  }

  @Test
  public void noKey() {
    refused("must be an Ed25519 public key in PEM", () -> Bundle.trust("no key"));
    isNull("publicKey", () -> Bundle.trust(null));
  }

  @Test
  public void missingBundle() {
    File rows = Scratch.fresh("rows.jsonl");
    TrainingFiles files = new TrainingFiles(Scratch.NOWHERE, rows, rows);
    refused("/no/such/bundle.json", () -> Bundle.open(Scratch.NOWHERE));
    refused("/no/such/bundle.json", () -> Generator.open(Scratch.NOWHERE, null));
    refused("/no/such/bundle.json", () -> Trainer.open(files, new TrainOptions()));
    refused("/no/such/bundle.json", () -> Dataset.open(Scratch.NOWHERE, rows));
    wrong("must not be empty", () -> Bundle.open(new File("")));
    try (Generator generator = Generator.open(Scratch.BUNDLE, Scratch.NOWHERE)) {
      refused("/no/such", () -> generator.chat(Scratch.QUESTION, Scratch.answers(), null));
    }
  }

  @Test
  public void damagedBundle() throws Exception {
    File tokens = Scratch.tokens();
    File description = Scratch.copyOfBundle();
    Scratch.flipByte(new File(description, "bundle.json"), 0);
    refused("bundle.json", () -> Bundle.open(description));
    for (String name : new String[] {"program.pte", "weights.ptd"}) {
      File bundle = Scratch.copyOfBundle();
      File file = new File(bundle, name);
      Scratch.flipByte(file, (int) file.length() / 2);
      refused(name, () -> train(bundle, tokens, Scratch.fresh("out"), Scratch.options(2)));
      Files.write(file.toPath(), Arrays.copyOf(Files.readAllBytes(file.toPath()), 1000));
      refused(name, () -> train(bundle, tokens, Scratch.fresh("out"), Scratch.options(2)));
    }
    File textless = Scratch.copyOfBundle();
    assertTrue(new File(textless, "text.json").delete());
    refused(
        "text.json",
        () -> {
          try (Generator generator = Generator.open(textless, null)) {
            generator.chat(Scratch.QUESTION, Scratch.answers(), null);
          }
        });
  }

  @Test
  public void wrongFiles() throws Exception {
    File tokens = Scratch.tokens();
    File file = Scratch.fresh("file");
    Files.write(file.toPath(), "not a folder".getBytes(UTF_8));
    refused(file.getPath(), () -> train(Scratch.BUNDLE, tokens, file, Scratch.options(2)));
    refused(file.getPath(), () -> train(Scratch.BUNDLE, file, Scratch.fresh("out"), Scratch.options(2)));
    refused("/no/such", () -> train(Scratch.BUNDLE, Scratch.NOWHERE, Scratch.fresh("out"), Scratch.options(2)));
    wrong("files.out: must not be empty", () -> train(Scratch.BUNDLE, tokens, new File(""), Scratch.options(2)));
    TrainingFiles files = new TrainingFiles(Scratch.BUNDLE, tokens, Scratch.fresh("out"));
    try (Trainer trainer = Trainer.open(files.resume(), Scratch.options(2))) {
      refused("nothing to resume", () -> trainer.run(null));
      refused("open another one", () -> trainer.run(null));
      refused("open another one", () -> trainer.step(null));
    }
    try (Bundle bundle = Bundle.open(Scratch.BUNDLE)) {
      refused(file.getPath(), () -> bundle.evaluate(null, file));
      refused("/no/such", () -> bundle.evaluate(Scratch.NOWHERE, tokens));
    }
  }

  @Test
  public void budgetTooSmall() {
    TrainOptions options = Scratch.options(2);
    options.set("budget", "1");
    refused("too small", () -> train(Scratch.BUNDLE, Scratch.tokens(), Scratch.fresh("out"), options));
  }

  /** A child process that may write files of 8 KB at most, as a full disk would have it. */
  @Test
  public void diskFull() throws Exception {
    List<String> output =
        Scratch.output(
            Arrays.asList(
                "bash", "-c", "ulimit -f 8 && exec \"$@\"", "bash",
                System.getProperty("java.home") + "/bin/java", "-XX:-UsePerfData", "-Xcheck:jni",
                "-Djava.library.path=" + System.getProperty("java.library.path"),
                "-Dmft.bundle=" + Scratch.BUNDLE, "-Dmft.scratch=" + Scratch.fresh("child"),
                "-cp", System.getProperty("java.class.path"),
                "ai.mobileft.FullDisk", Scratch.tokens().getPath()));
    assertEquals(output.toString(), "ok", output.get(output.size() - 1));
    assertFalse(output.toString(), output.toString().contains("in native method")); // of -Xcheck:jni
  }

  @Test
  public void options() {
    TrainOptions train = new TrainOptions();
    wrong("unknown option max_tokens", () -> train.set("max_tokens", "1"));
    wrong("unknown option max_tokens", () -> train.get("max_tokens"));
    wrong("unknown option steps", () -> new GenerateOptions().set("steps", "1"));
    refused("schedule half: must be one of", () -> train.set("schedule", "half"));
    assertEquals("full", train.get("schedule"));
    train.set("schedule", "suffix");
    assertEquals("suffix", train.get("schedule"));
    assertEquals("100", new GenerateOptions().get("max_tokens"));
    isNull("name", () -> train.set(null, "1"));
    isNull("value", () -> train.set("lr", null));
    isNull("name", () -> train.get(null));
    wrong("NUL", () -> train.set("lr", "1\0"));
  }

  @Test
  public void rows() {
    try (Dataset dataset = Dataset.open(Scratch.BUNDLE, Scratch.fresh("rows.jsonl"))) {
      File tokens = Scratch.fresh("tokens");
      refused("empty", () -> dataset.writeTokens(Scratch.options(1), tokens));
      refused("nothing to learn", () -> dataset.add(Scratch.QUESTION));
      refused("non-empty list", () -> dataset.add(Collections.emptyList()));
      refused("not JSON", () -> dataset.addRow("{\"text\""));
      refused("", () -> dataset.add(Arrays.asList(new Message("nobody", "hello"))));
      isNull("text", () -> dataset.addText(null));
      isNull("completion", () -> dataset.addPair("a", null));
      isNull("content", () -> Message.user(null));
      assertEquals(0, dataset.getRows());
    }
  }

  @Test
  public void prompts() {
    GenerateOptions options = Scratch.answers();
    List<Long> tokens = new ArrayList<>();
    TokenListener all = tokens::add;
    try (Generator generator = generator()) {
      wrong("direct", () -> generator.generate(LongBuffer.wrap(new long[] {1}), options, all));
      LongBuffer swapped = ByteBuffer.allocateDirect(8).order(other()).asLongBuffer();
      wrong("byte order", () -> generator.generate(swapped, options, all));
      ByteBuffer bytes = ByteBuffer.allocateDirect(32);
      bytes.position(1);
      LongBuffer odd = bytes.slice().order(ByteOrder.nativeOrder()).asLongBuffer();
      wrong(odd.isDirect() ? "aligned to 8 bytes" : "direct", () -> generator.generate(odd, options, all));
      refused("the prompt is empty", () -> generator.generate(direct(), options, all));
      refused("not in the vocabulary", () -> generator.generate(direct(1, 250), options, all));
      refused("", () -> generator.generate(direct(new long[65]), options, all));
      isNull("listener", () -> generator.generate(direct(1), options, null));
      refused("", () -> generator.chat(Collections.emptyList(), options, null));
      assertEquals(0, tokens.size());

      LongBuffer part = direct(250, 0, 1, 2, 250); // of which only the middle counts
      part.position(1).limit(4);
      generator.generate(part, options, all);
      List<Long> first = new ArrayList<>(tokens);
      assertEquals(20, first.size());
      assertEquals(1, part.position());
      assertEquals(4, part.limit());
      tokens.clear();
      generator.generate(direct(0, 1, 2), options, all);
      assertEquals(first, tokens);
      tokens.clear();
      generator.generate(direct(0, 1, 2), options, token -> tokens.add(token) && tokens.size() < 5);
      assertEquals(first.subList(0, 5), tokens);
    }
  }

  private static ByteOrder other() {
    return ByteOrder.nativeOrder() == ByteOrder.BIG_ENDIAN ? ByteOrder.LITTLE_ENDIAN : ByteOrder.BIG_ENDIAN;
  }

  @Test
  public void useAfterClose() {
    File tokens = Scratch.tokens();
    Bundle bundle = Bundle.open(Scratch.BUNDLE);
    bundle.close();
    bundle.close();
    closed("Bundle is closed", bundle::getVocabSize);
    closed("Bundle is closed", bundle::getMaxSeqLen);
    closed("Bundle is closed", () -> bundle.plan(Scratch.options(1)));
    closed("Bundle is closed", () -> bundle.evaluate(null, tokens));
    Dataset dataset = Dataset.open(Scratch.BUNDLE, Scratch.fresh("rows.jsonl"));
    dataset.close();
    dataset.close();
    closed("Dataset is closed", () -> dataset.add(Scratch.TAUGHT));
    closed("Dataset is closed", () -> dataset.addPair("a", "b"));
    closed("Dataset is closed", () -> dataset.addText("a"));
    closed("Dataset is closed", () -> dataset.addRow("{}"));
    closed("Dataset is closed", dataset::getRows);
    closed("Dataset is closed", () -> dataset.writeTokens(Scratch.options(1), tokens));
    Trainer trainer =
        Trainer.open(new TrainingFiles(Scratch.BUNDLE, tokens, Scratch.fresh("out")), Scratch.options(1));
    trainer.close();
    trainer.close();
    closed("Trainer is closed", () -> trainer.run(null));
    closed("Trainer is closed", () -> trainer.step(null));
    trainer.cancel(); // does nothing
    Generator generator = generator();
    generator.close();
    generator.close();
    closed("Generator is closed", () -> generator.chat(Scratch.QUESTION, Scratch.answers(), null));
    closed("Generator is closed", () -> generator.generate(direct(1), Scratch.answers(), token -> true));
  }

  private static void closed(String message, ThrowingRunnable body) {
    assertEquals(message, assertThrows(IllegalStateException.class, body).getMessage());
  }

  @Test
  public void textThatIsNoText() {
    try (Dataset dataset = Dataset.open(Scratch.BUNDLE, Scratch.fresh("rows.jsonl"));
        Generator generator = generator()) {
      for (String bad : new String[] {"a\0b", "\uD83D", "\uDE00\uD83D", "a\uDE00"}) {
        String what = bad.contains("\0") ? "content: has a NUL" : "content: has an unpaired surrogate";
        wrong(what, () -> dataset.add(Arrays.asList(Message.user(bad), Message.assistant("hi"))));
        wrong(what, () -> generator.chat(Arrays.asList(Message.user(bad)), Scratch.answers(), null));
        wrong("text: has", () -> dataset.addText(bad));
        wrong("prompt: has", () -> dataset.addPair(bad, "hi"));
        wrong("completion: has", () -> dataset.addPair("hello", bad));
        wrong("json: has", () -> dataset.addRow(bad));
        wrong("role: has", () -> dataset.add(Arrays.asList(new Message(bad, "hi"))));
        wrong("folder: has", () -> Bundle.open(new File(bad)));
      }
      assertEquals(0, dataset.getRows());
    }
  }

  /** Outside of the first 65,536 characters JNI's own strings are not UTF-8. */
  @Test
  public void emojiStayWhatTheyAre() throws Exception {
    String emoji = "\uD83D\uDE00 né 中";
    File rows = Scratch.fresh("rows-\uD83D\uDE00-é.jsonl");
    try (Dataset dataset = Dataset.open(Scratch.BUNDLE, rows)) {
      dataset.add(Arrays.asList(Message.user(emoji), Message.assistant("hi")));
      dataset.addText("hi " + emoji);
      assertEquals(2, dataset.getRows());
      refused("\uD83D\uDE00", () -> dataset.addRow("{\"\uD83D\uDE00\": 1}"));
    }
    // Found under its name in UTF-8, whatever this machine's locale makes of Java's own file names.
    String print = "cat \"$1\"/rows-$'\\xf0\\x9f\\x98\\x80'-*";
    List<String> found = Scratch.output(Arrays.asList("bash", "-c", print, "bash", rows.getParent()));
    assertEquals(2, found.size());
    assertTrue(found.get(0), found.get(0).contains(emoji));
    assertTrue(found.get(1), found.get(1).contains(emoji));
    try (Generator generator = generator()) {
      generator.chat(Arrays.asList(Message.user(emoji)), Scratch.answers(), null);
    }
  }
}
