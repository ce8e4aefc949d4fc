package ai.mobileft;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNotEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.File;
import java.util.ArrayList;
import java.util.List;
import org.junit.Test;

/** From typed sentences to an answer that was learned. */
public class FlowTest {
  @Test
  public void typedSentencesChangeTheAnswer() {
    File rows = Scratch.fresh("rows.jsonl");
    File tokens = Scratch.fresh("tokens");
    File out = Scratch.fresh("out");
    TrainOptions options = Scratch.options(60);
    try (Dataset dataset = Dataset.open(Scratch.BUNDLE, rows)) {
      assertEquals(0, dataset.getRows());
      dataset.add(Scratch.TAUGHT);
    }
    try (Dataset dataset = Dataset.open(Scratch.BUNDLE, rows)) { // it is still there
      assertEquals(1, dataset.getRows());
      dataset.addPair("hello", "hi");
      dataset.addText("hello hi");
      dataset.addRow("{\"text\": \"unread\", \"weight\": 0}");
      DatasetStats stats = dataset.writeTokens(options, tokens);
      assertEquals(4, stats.getRows());
      assertEquals(1, stats.getDropped());
      assertEquals(0, stats.getTruncated());
      assertEquals(1, stats.getSequences());
      assertTrue(stats.getTokens() > stats.getTargetTokens() && stats.getTargetTokens() > 8);
    }

    double lossBefore;
    try (Bundle bundle = Bundle.open(Scratch.BUNDLE)) {
      assertEquals(250, bundle.getVocabSize());
      assertEquals(64, bundle.getMaxSeqLen());
      MemoryPlan unlimited = bundle.plan(options);
      assertEquals(-1, unlimited.getBudgetBytes());
      long budget = unlimited.getTotalBytes() + 50_000_000; // Java's own memory grows meanwhile
      options.set("budget", Long.toString(budget));
      MemoryPlan plan = bundle.plan(options);
      assertEquals(budget, plan.getBudgetBytes());
      assertTrue(plan.getTotalBytes() <= plan.getBudgetBytes());
      assertTrue(plan.getAnonymousBytes() > 0 && plan.getAnonymousBytes() < plan.getTotalBytes());
      long sum = 0;
      for (long bytes : plan.getComponentBytes().values()) sum += bytes;
      assertEquals(plan.getTotalBytes(), sum);
      assertTrue(plan.getStepSeconds() > 0);
      assertTrue(plan.getJson().startsWith("{\"event\":\"plan\""));

      Evaluation before = bundle.evaluate(null, tokens);
      assertTrue(before.getTargets() > 8);
      lossBefore = before.getLoss();
    }

    String untaught = answer(null);
    try (Trainer trainer = Trainer.open(new TrainingFiles(Scratch.BUNDLE, tokens, out), options)) {
      trainer.run(null);
    }
    assertNotEquals("hi", untaught);
    assertEquals("hi", answer(out));
    try (Generator generator = Generator.open(Scratch.BUNDLE, null)) {
      for (int i = 0; i < 2; ++i) {
        assertEquals(untaught, generator.chat(Scratch.QUESTION, Scratch.answers(), null));
        generator.useAdapter(out);
        assertEquals("hi", generator.chat(Scratch.QUESTION, Scratch.answers(), null));
        generator.useAdapter(null);
      }
      generator.useAdapter(new File(out, "absent"));
      assertThrows(MobileFtException.class, () -> generator.chat(Scratch.QUESTION, Scratch.answers(), null));
    }
    try (Bundle bundle = Bundle.open(Scratch.BUNDLE)) {
      assertTrue(bundle.evaluate(out, tokens).getLoss() < lossBefore);
    }
  }

  /** To the question that was taught; the pieces are the whole. */
  private static String answer(File adapter) {
    List<String> pieces = new ArrayList<>();
    try (Generator generator = Generator.open(Scratch.BUNDLE, adapter)) {
      String answer = generator.chat(Scratch.QUESTION, Scratch.answers(), pieces::add);
      assertEquals(String.join("", pieces), answer);
      assertEquals(answer, generator.chat(Scratch.QUESTION, Scratch.answers(), null));
      String parts = "[{\"type\": \"text\", \"text\": \"" + Scratch.QUESTION.get(0).getContent() + "\"}]";
      String json = "{\"messages\": [{\"role\": \"user\", \"content\": " + parts + "}]}";
      assertEquals(answer, generator.chatJson(json, Scratch.answers(), null));
      return answer;
    }
  }

  @Test
  public void longDialoguesAreTaken() {
    List<Message> messages = new ArrayList<>();
    messages.add(Message.system("be brief"));
    for (int i = 0; i < 100; ++i) {
      messages.add(Message.user("hello"));
      messages.add(Message.assistant("hi " + i));
    }
    try (Dataset dataset = Dataset.open(Scratch.BUNDLE, Scratch.fresh("rows.jsonl"))) {
      dataset.add(messages);
      DatasetStats stats = dataset.writeTokens(Scratch.options(1), Scratch.fresh("tokens"));
      assertEquals(1, stats.getRows());
      assertEquals(1, stats.getTruncated());
    }
  }
}
