package ai.mobileft.app;

import ai.mobileft.Dataset;

/** One question and the answer that the model shall learn, as the user typed them, without the space around. */
public final class ExampleForm {
  /** Characters of a question or an answer; what a model's longest sequence still cuts, DatasetStats tells. */
  public static final int MOST_CHARACTERS = 4000;

  private final String question;
  private final String answer;

  public ExampleForm(String question, String answer) {
    this.question = question.trim();
    this.answer = answer.trim();
  }

  /** What is wrong, in a line for the user; null where nothing is. */
  public String mistake() {
    String mistake = mistake("question", question);
    return mistake != null ? mistake : mistake("answer", answer);
  }

  /**
   * Adds it to the training data.
   *
   * @throws IllegalArgumentException where there is a mistake, or a character that is none
   * @throws ai.mobileft.MobileFtException where the model cannot learn from it, or the disk is full
   */
  public void addTo(Dataset dataset) {
    String mistake = mistake();
    if (mistake != null) throw new IllegalArgumentException(mistake);
    dataset.addPair(question, answer);
  }

  private static String mistake(String name, String text) {
    if (text.isEmpty()) return "the " + name + " is blank";
    if (text.length() <= MOST_CHARACTERS) return null;
    return "the " + name + " has " + text.length() + " characters, at most " + MOST_CHARACTERS + " are taken";
  }
}
