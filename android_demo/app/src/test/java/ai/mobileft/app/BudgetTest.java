package ai.mobileft.app;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import java.io.File;
import java.io.IOException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.Test;

public class BudgetTest {
  private final Computing computing = new Computing();
  private final Board board = new Board();
  private final AtomicInteger changes = new AtomicInteger();

  private Budget budget(File bundle) throws IOException {
    File folder = SafeFiles.beside(Scratch.fresh("app"));
    AppFiles files = new AppFiles(folder, bundle);
    return new Budget(files, Runnable::run, computing, board, Settings.open(files.settings()), 4_000_000_000L);
  }

  private void afterAllTasks() throws InterruptedException {
    CountDownLatch done = new CountDownLatch(1);
    computing.run(done::countDown);
    done.await();
  }

  /** As where a slider moves on while a plan is made. */
  @Test
  public void lastPositionCounts() throws Exception {
    Budget budget = budget(Scratch.BUNDLE);
    CountDownLatch go = new CountDownLatch(1);
    computing.run(
        () -> {
          try {
            go.await();
          } catch (InterruptedException e) {
            throw new AssertionError(e);
          }
        });
    board.observe(changes::incrementAndGet);
    for (int position = 91; position <= 100; ++position) budget.set(5, position);
    go.countDown();
    afterAllTasks();
    assertEquals(1, changes.get());
    assertTrue(budget.getText(), budget.getText().matches("4000 MB: .* per step, 5 steps in .*"));
    assertEquals(100, budget.getPosition());
  }

  @Test
  public void saysWhyThereIsNoPlan() throws Exception {
    File damaged = SafeFiles.beside(Scratch.fresh("bundle"));
    assertTrue(new File(damaged, "bundle.json").createNewFile());
    Budget budget = budget(damaged);
    budget.ask();
    afterAllTasks();
    assertTrue(budget.getText(), budget.getText().contains("bundle.json"));
  }
}
