package ai.mobileft;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.File;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.BeforeClass;
import org.junit.Test;

public class TrainingTest {
  private static final int STEPS = 10;

  private static File tokens;
  private static List<String> losses; // of mft-run

  @BeforeClass
  public static void trainByMftRun() throws Exception {
    tokens = Scratch.tokens();
    String out = Scratch.fresh("out").getPath();
    losses =
        Scratch.losses(
            Scratch.output(
                Arrays.asList(
                    System.getProperty("mft.run"), "train", Scratch.BUNDLE.getPath(), "--data", tokens.getPath(),
                    "--out", out, "--steps", "" + STEPS, "--seq-len", "64", "--lr", "1e-2")));
    assertEquals(STEPS, losses.size());
  }

  private static Trainer open(TrainingFiles files) {
    return Trainer.open(files, Scratch.options(STEPS));
  }

  private static List<String> jsonOf(List<TrainingEvent> events) {
    List<String> json = new ArrayList<>();
    for (TrainingEvent event : events) json.add(event.getJson());
    return json;
  }

  private static TrainingEvent last(List<TrainingEvent> events) {
    return events.get(events.size() - 1);
  }

  @Test
  public void lossesAreThoseOfMftRun() {
    List<TrainingEvent> events = new ArrayList<>();
    try (Trainer trainer = open(new TrainingFiles(Scratch.BUNDLE, tokens, Scratch.fresh("out")))) {
      trainer.run(events::add);
    }
    assertEquals(losses, Scratch.losses(jsonOf(events)));
    assertEquals("plan", events.get(0).getKind());
    assertEquals("done", last(events).getKind());
  }

  @Test
  public void stepByStepTheyAreTheSame() {
    List<TrainingEvent> events = new ArrayList<>();
    int steps = 1;
    try (Trainer trainer = open(new TrainingFiles(Scratch.BUNDLE, tokens, Scratch.fresh("out")))) {
      while (trainer.step(events::add)) {
        assertEquals(steps, last(events).getStep());
        ++steps;
      }
      MobileFtException over = assertThrows(MobileFtException.class, () -> trainer.step(null));
      assertTrue(over.getMessage(), over.getMessage().contains("open another one"));
    }
    assertEquals(STEPS, steps);
    assertEquals(losses, Scratch.losses(jsonOf(events)));
    assertEquals("done", last(events).getKind());
  }

  @Test
  public void oneStepAndThenAllTheOthersAreTheSame() {
    List<TrainingEvent> events = new ArrayList<>();
    try (Trainer trainer = open(new TrainingFiles(Scratch.BUNDLE, tokens, Scratch.fresh("out")))) {
      assertTrue(trainer.step(events::add));
      assertTrue(trainer.step(null)); // not heard of
      trainer.run(events::add);
    }
    List<String> expected = new ArrayList<>(losses);
    expected.remove(1);
    assertEquals(expected, Scratch.losses(jsonOf(events)));
  }

  @Test
  public void cancelledAndResumedTheyAreTheSame() {
    List<TrainingEvent> events = new ArrayList<>();
    TrainingFiles files = new TrainingFiles(Scratch.BUNDLE, tokens, Scratch.fresh("out"));
    try (Trainer trainer = open(files)) {
      TrainingListener cancelAtThree =
          event -> {
            events.add(event);
            if (event.getKind().equals("step") && event.getStep() == 3) inAnotherThread(trainer::cancel);
          };
      TrainingStoppedException stopped =
          assertThrows(TrainingStoppedException.class, () -> trainer.run(cancelAtThree));
      assertTrue(stopped.getMessage(), stopped.getMessage().contains("cancelled; step 3 is saved in "));
    }
    assertEquals(losses.subList(0, 3), Scratch.losses(jsonOf(events)));
    assertEquals("stopped", last(events).getKind());
    assertEquals("cancelled", last(events).getReason());
    assertEquals(3, last(events).getStep());

    events.clear();
    try (Trainer trainer = open(files.resume())) {
      trainer.run(events::add);
    }
    assertEquals(losses.subList(3, STEPS), Scratch.losses(jsonOf(events)));
  }

  private static void inAnotherThread(Runnable body) {
    Thread thread = new Thread(body);
    thread.start();
    try {
      thread.join();
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  @Test
  public void eventsAreRead() {
    List<TrainingEvent> events = new ArrayList<>();
    try (Trainer trainer = open(new TrainingFiles(Scratch.BUNDLE, tokens, Scratch.fresh("out")))) {
      trainer.step(events::add);
    }
    assertEquals(2, events.size());
    TrainingEvent plan = events.get(0);
    assertEquals("plan", plan.getKind());
    assertEquals(-1, plan.getStep());
    assertEquals(-1, plan.getTokens());
    assertEquals(-1, plan.getRssBytes());
    assertEquals(-1, plan.getAnonBytes());
    assertTrue(Double.isNaN(plan.getLoss()) && Double.isNaN(plan.getSeconds()));
    assertNull(plan.getReason());
    TrainingEvent step = events.get(1);
    assertEquals("step", step.getKind());
    assertEquals(1, step.getStep());
    assertEquals(Double.parseDouble(losses.get(0)), step.getLoss(), 0);
    assertTrue(step.getSeconds() > 0 && step.getSeconds() < 600);
    assertTrue(step.getTokens() > 8 && step.getTokens() <= 64);
    ProcessMemory memory = ProcessMemory.now();
    assertEquals(memory.getRss(), step.getRssBytes(), 0.5 * memory.getRss());
    assertEquals(memory.getAnon(), step.getAnonBytes(), 0.5 * memory.getAnon());
    assertTrue(memory.getPeakRss() >= memory.getRss() && memory.getRss() > memory.getAnon());
  }

  @Test
  public void validatesAndStartsFromAnAdapter() {
    List<TrainingEvent> events = new ArrayList<>();
    File out = Scratch.fresh("out");
    TrainOptions options = Scratch.options(STEPS);
    options.set("eval_every", "5");
    try (Trainer trainer = Trainer.open(new TrainingFiles(Scratch.BUNDLE, tokens, out).valid(tokens), options)) {
      trainer.run(events::add);
    }
    int validations = 0;
    for (TrainingEvent event : events) {
      if (event.getKind().equals("eval")) ++validations;
    }
    assertEquals(2, validations);
    File best = new File(out, "best");
    assertTrue(best.isDirectory());

    events.clear();
    try (Trainer trainer = open(new TrainingFiles(Scratch.BUNDLE, tokens, Scratch.fresh("out")).adapter(best))) {
      trainer.step(events::add);
    }
    assertTrue(last(events).getLoss() < Double.parseDouble(losses.get(0)));
    assertFalse(Double.isNaN(last(events).getLoss()));
  }
}
