package ai.mobileft;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.Test;

public class LearnerTest {
  private static LearnOptions options() {
    LearnOptions options = new LearnOptions();
    options.set("seq_len", "48");
    options.set("lr", "5e-3");
    options.set("epochs", "3");
    options.set("general_bound", "10");
    return options;
  }

  private static File rows(int count) throws IOException {
    StringBuilder rows = new StringBuilder();
    for (int i = 0; i < count; ++i) {
      rows.append("{\"id\":\"row" + i + "\",\"prompt\":\"" + i + "?\",\"completion\":\"hello\"}\n");
    }
    File file = Scratch.fresh("rows.jsonl");
    Files.write(file.toPath(), rows.toString().getBytes(UTF_8));
    return file;
  }

  @Test
  public void nights() throws IOException {
    List<String> kinds = new ArrayList<>();
    File folder = Scratch.fresh("learner");
    try (Learner learner = Learner.open(Scratch.BUNDLE, folder)) {
      assertThrows(MobileFtException.class, learner::getState);
      LearnerState state = learner.learn(rows(40), options(), event -> kinds.add(event.getKind()));
      assertTrue(state.getLastNightReason(), state.isLastNightAdopted());
      assertEquals(1, state.getVersion());
      assertEquals(1, state.getNights());
      assertEquals(40, state.getRows());
      assertTrue(state.getHeldOutRows() >= 4);
      assertTrue(new File(state.getAdapterFolder(), "adapter_model.safetensors").isFile());
      assertEquals(Arrays.asList("rows", "night", "plan"), kinds.subList(0, 3));
      assertEquals(Arrays.asList("trained", "verdict", "done"), kinds.subList(kinds.size() - 3, kinds.size()));

      state = learner.learn(rows(40), options(), null);
      assertFalse(state.isLastNightAdopted());
      assertEquals("there is no new row to train on", state.getLastNightReason());
      assertNull(learner.rollBack(0).getAdapterFolder());
      assertEquals(1, learner.rollBack(1).getVersion());
      assertThrows(MobileFtException.class, () -> learner.rollBack(9));
      assertEquals(39, learner.forget(Arrays.asList("row7"), null).getRows());
      assertThrows(MobileFtException.class, () -> learner.forget(Arrays.asList("nobody"), null));
      assertEquals(learner.getState().getJson(), learner.rollBack(learner.getState().getVersion()).getJson());
    }
  }

  @Test
  public void cancelledNightsChangeNothing() throws IOException {
    try (Learner learner = Learner.open(Scratch.BUNDLE, Scratch.fresh("learner"))) {
      String before = learner.learn(rows(30), options(), null).getJson();
      TrainingStoppedException stopped =
          assertThrows(
              TrainingStoppedException.class,
              () ->
                  learner.learn(
                      rows(60),
                      options(),
                      event -> {
                        if (event.getKind().equals("step")) learner.cancel();
                      }));
      assertTrue(stopped.getMessage(), stopped.getMessage().contains("as it was before"));
      assertEquals(before, learner.getState().getJson());
      IllegalStateException mine = new IllegalStateException("mine");
      IllegalStateException thrown =
          assertThrows(
              IllegalStateException.class,
              () ->
                  learner.learn(
                      rows(60),
                      options(),
                      event -> {
                        throw mine;
                      }));
      assertEquals(mine, thrown);
      assertEquals(before, learner.getState().getJson());
      assertEquals(60, learner.learn(rows(60), options(), null).getRows());
    }
  }

  @Test
  public void mistakes() throws IOException {
    assertThrows(MobileFtException.class, () -> Learner.open(Scratch.NOWHERE, Scratch.fresh("learner")));
    assertThrows(IllegalArgumentException.class, () -> new LearnOptions().set("held", "0.1"));
    assertEquals("0.25", new LearnOptions().get("held_out"));
    try (Learner learner = Learner.open(Scratch.BUNDLE, Scratch.fresh("learner"))) {
      assertThrows(MobileFtException.class, () -> learner.learn(Scratch.NOWHERE, options(), null));
      LearnOptions all = options();
      all.set("held_out", "1");
      assertThrows(MobileFtException.class, () -> learner.learn(rows(9), all, null));
    }
  }
}
