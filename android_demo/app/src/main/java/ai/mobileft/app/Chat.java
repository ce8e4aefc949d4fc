package ai.mobileft.app;

import ai.mobileft.GenerateOptions;
import ai.mobileft.Generator;
import ai.mobileft.Message;
import ai.mobileft.MobileFtException;
import java.io.File;
import java.util.Collections;
import java.util.List;
import java.util.function.Consumer;

/** The same question answered before and after training: without the adapter, and with it, where there is one. */
public final class Chat {
  private final AppFiles appFiles;
  private final Computing computing;
  private final Trainings trainings;
  private final Board board;
  private volatile boolean on = false;
  private volatile boolean stopped = false;
  private volatile String before = "";
  private volatile String after = "";

  Chat(AppFiles appFiles, Computing computing, Trainings trainings, Board board) {
    this.appFiles = appFiles;
    this.computing = computing;
    this.trainings = trainings;
    this.board = board;
  }

  /** Whether answers are still coming. */
  public boolean isOn() {
    return on;
  }

  /** What there is by now of the answer without the adapter. */
  public String getBefore() {
    return before;
  }

  /** What there is by now of the answer with it; empty where there is none. */
  public String getAfter() {
    return after;
  }

  /** Asks; a training is put aside until the answers are there. */
  public synchronized void ask(String question) {
    if (on) return;
    if (question.trim().isEmpty()) {
      board.say("the question is blank");
      return;
    }
    if (appFiles.bundle() == null) {
      board.say("choose a model first");
      return;
    }
    on = true;
    stopped = false;
    before = "";
    after = "";
    board.say("");
    computing.run(
        () -> {
          try {
            answer(question.trim(), null, piece -> before += piece);
            File adapter = trainings.adapter();
            if (adapter != null && !stopped) answer(question.trim(), adapter, piece -> after += piece);
          } catch (MobileFtException | IllegalArgumentException e) { // as of a character that is none
            board.say(e);
          } finally {
            on = false;
            board.changed();
          }
        });
  }

  /** Ends the answer after the next piece. */
  public void stop() {
    stopped = true;
  }

  private void answer(String question, File adapter, Consumer<String> pieces) {
    List<Message> dialogue = Collections.singletonList(Message.user(question));
    try (Generator generator = Generator.open(appFiles.bundle(), adapter)) {
      generator.chat(
          dialogue,
          new GenerateOptions(),
          piece -> {
            pieces.accept(piece);
            board.changed();
            return !stopped;
          });
    }
  }
}
