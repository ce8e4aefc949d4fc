package ai.mobileft.app;

import ai.mobileft.Dataset;

/** A question and the answer to learn, as typed by the user, without surrounding white space. */
public final class ExampleForm {
  /**
   * Maximum characters of a question or an answer. DatasetStats reports rows that exceed the model's longest sequence.
   */
  public static final int MOST_CHARACTERS = 4000;

  private final String question;
  private final String answer;

  public ExampleForm(String question, String answer) {
    this.question = question.trim();
    this.answer = answer.trim();
  }

  /** The mistake, as a line for the user, or null. */
  public String mistake() {
    String mistake = mistake("question", question);
    return mistake != null ? mistake : mistake("answer", answer);
  }

  /**
   * Adds it to the training data.
   *
   * @throws IllegalArgumentException if there is a mistake, or an invalid character
   * @throws ai.mobileft.MobileFtException if the model cannot learn from it, or the disk is full
   */
  public void addTo(Dataset dataset) {
    String mistake = mistake();
    if (mistake != null) throw new IllegalArgumentException(mistake);
    dataset.addPair(question, answer);
  }

  private static String mistake(String name, String text) {
    if (text.isEmpty()) return "the " + name + " is empty";
    if (text.length() <= MOST_CHARACTERS) return null;
    return "the " + name + " has " + text.length() + " characters; the maximum is " + MOST_CHARACTERS;
  }
}
