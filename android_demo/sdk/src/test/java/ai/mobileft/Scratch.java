package ai.mobileft;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The small bundle, and files to write. */
final class Scratch {
  static final File BUNDLE = new File(System.getProperty("mft.bundle"));
  static final File NOWHERE = new File("/no/such");
  static final List<Message> QUESTION = Arrays.asList(Message.user("hello"));
  static final List<Message> TAUGHT = Arrays.asList(Message.user("hello"), Message.assistant("hi"));

  private static final File FOLDER = new File(System.getProperty("mft.scratch"));
  private static final Pattern LOSS = Pattern.compile("\"loss\":([^,}]+)");
  private static int names = 0;

  private Scratch() {}

  /** What does not exist yet. */
  static synchronized File fresh(String name) {
    return new File(FOLDER, name + ++names);
  }

  static TrainOptions options(int steps) {
    TrainOptions options = new TrainOptions();
    options.set("steps", Integer.toString(steps));
    options.set("seq_len", "64");
    options.set("lr", "1e-2");
    return options;
  }

  static GenerateOptions answers() {
    GenerateOptions options = new GenerateOptions();
    options.set("max_tokens", "20");
    return options;
  }

  /** Tokens of a few rows. */
  static File tokens() {
    File tokens = fresh("tokens");
    try (Dataset dataset = Dataset.open(BUNDLE, fresh("rows.jsonl"))) {
      dataset.add(TAUGHT);
      dataset.addText("hello hello, this is a longer text");
      dataset.addPair("1 + 1", "2");
      dataset.writeTokens(options(1), tokens);
    }
    return tokens;
  }

  /** The bundle again, to be damaged. */
  static File copyOfBundle() throws IOException {
    File copy = fresh("bundle");
    assertTrue(copy.mkdirs());
    for (File file : BUNDLE.listFiles()) Files.copy(file.toPath(), new File(copy, file.getName()).toPath());
    return copy;
  }

  static void flipByte(File file, int at) throws IOException {
    byte[] bytes = Files.readAllBytes(file.toPath());
    bytes[at] ^= 0x10;
    Files.write(file.toPath(), bytes);
  }

  /** An adapter that answers {@code QUESTION} by "hi". */
  static File taught() {
    File out = fresh("taught");
    try (Trainer trainer = Trainer.open(new TrainingFiles(BUNDLE, taughtTokens(), out), options(60))) {
      trainer.run(null);
    }
    return out;
  }

  private static File taughtTokens() {
    File tokens = fresh("tokens");
    try (Dataset dataset = Dataset.open(BUNDLE, fresh("rows.jsonl"))) {
      dataset.add(TAUGHT);
      dataset.writeTokens(options(1), tokens);
    }
    return tokens;
  }

  /** The losses of steps, as they are spelled. */
  static List<String> losses(List<String> events) {
    List<String> losses = new ArrayList<>();
    for (String event : events) {
      if (event.startsWith("{\"event\":\"step\"")) {
        Matcher matcher = LOSS.matcher(event);
        assertTrue(event, matcher.find());
        losses.add(matcher.group(1));
      }
    }
    return losses;
  }

  /** The lines that a program prints. */
  static List<String> output(List<String> command) throws IOException, InterruptedException {
    Path output = fresh("output").toPath();
    Process process =
        new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(output.toFile()).start();
    int exit = process.waitFor();
    List<String> lines = Files.readAllLines(output, UTF_8);
    assertEquals(lines.toString(), 0, exit);
    return lines;
  }
}
