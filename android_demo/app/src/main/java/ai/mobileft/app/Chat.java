package ai.mobileft.app;

import ai.mobileft.GenerateOptions;
import ai.mobileft.Generator;
import ai.mobileft.Message;
import ai.mobileft.MobileFtException;
import java.io.File;
import java.util.Collections;
import java.util.List;
import java.util.function.Consumer;

/** Answers the same question before and after training: without the adapter, and with it if there is one. */
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

  /** Whether an answer is being generated. */
  public boolean isOn() {
    return on;
  }

  /** The answer so far without the adapter. */
  public String getBefore() {
    return before;
  }

  /** The answer so far with the adapter; "" if there is none. */
  public String getAfter() {
    return after;
  }

  /** Asks a question. A training is paused until the answers are complete. */
  public synchronized void ask(String question) {
    if (on) return;
    if (question.trim().isEmpty()) {
      board.say("The question is empty.");
      return;
    }
    if (appFiles.bundle() == null) {
      board.say("Choose a model first.");
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
          } catch (MobileFtException | IllegalArgumentException e) { // such as an invalid character
            board.say(e);
          } finally {
            on = false;
            board.changed();
          }
        });
  }

  /** Stops the answer after the next piece. */
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
