package ai.mobileft.app;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import ai.mobileft.Dataset;
import java.io.File;
import java.io.IOException;
import java.io.Reader;
import java.io.StringReader;
import java.nio.file.Files;
import java.util.Collections;
import java.util.List;
import org.junit.Test;

/** What the user types, or imports. */
public class ExampleTest {
  private static final String LONG = String.join("", Collections.nCopies(ExampleForm.MOST_CHARACTERS, "a"));

  private final File rows = Scratch.fresh("rows.jsonl");

  @Test
  public void mistakesOfTheForm() {
    assertNull(new ExampleForm("hello", "hi").mistake());
    assertNull(new ExampleForm(LONG + " ", "\n" + LONG).mistake());
    assertEquals("the question is empty", new ExampleForm(" \t\n", "").mistake());
    assertEquals("the answer is empty", new ExampleForm("hello", " ").mistake());
    String tooLong = " has 4001 characters; the maximum is 4000";
    assertEquals("the question" + tooLong, new ExampleForm(LONG + "a", "hi").mistake());
    assertEquals("the answer" + tooLong, new ExampleForm("hi", LONG + "a").mistake());
  }

  @Test
  public void addsWhatWasTyped() throws Exception {
    try (Dataset dataset = Dataset.open(Scratch.BUNDLE, rows)) {
      new ExampleForm(" hello\nthere ", "\thi\n").addTo(dataset);
      assertEquals(
          "the answer is empty",
          assertThrows(IllegalArgumentException.class, () -> new ExampleForm("hello", "").addTo(dataset))
              .getMessage());
      assertEquals(1, dataset.getRows());
    }
    List<String> written = Files.readAllLines(rows.toPath());
    assertEquals(1, written.size());
    assertEquals("{\"completion\":\"hi\",\"prompt\":\"hello\\nthere\"}", written.get(0));
  }

  private ExampleImport read(String lines) throws IOException {
    try (Dataset dataset = Dataset.open(Scratch.BUNDLE, rows)) {
      long before = dataset.getRows();
      ExampleImport result = ExampleImport.read(new StringReader(lines), dataset);
      assertEquals(before + result.getAdded(), dataset.getRows());
      return result;
    }
  }

  @Test
  public void importsBothKindsOfLines() throws Exception {
    ExampleImport result = read("hello\thi\r\n\n{\"prompt\": \"1 + 1\", \"completion\": \"2\"}\n  \na\tb\tc");
    assertEquals(3, result.getAdded());
    assertEquals(0, result.getLeftOut());
    assertNull(result.getFirstError());
    List<String> written = Files.readAllLines(rows.toPath());
    assertEquals("{\"completion\":\"hi\",\"prompt\":\"hello\"}", written.get(0));
    assertEquals("{\"completion\":\"b\\tc\",\"prompt\":\"a\"}", written.get(2));
    assertEquals(0, read("").getAdded());
  }

  /** Lines with a mistake, and a part of what is said of them; the lines around are taken. */
  @Test
  public void leavesOutWhatIsWrong() throws Exception {
    String[][] table = {
      {"no tab", "must have a question, a tab and an answer"},
      {"hello\t ", "the answer is empty"},
      {"\thi", "the question is empty"},
      {"hello\t" + LONG + "a", "4001 characters"},
      {"hello\ta\0b", "NUL"},
      {"\uD83D\thi", "surrogate"},
      {"{\"prompt\": 1", "not JSON"},
      {"{\"unknown\": 1}", ""},
    };
    for (String[] row : table) {
      ExampleImport result = read("hello\thi\n\n" + row[0] + "\nhello\thi\nagain no tab\n");
      assertEquals(2, result.getAdded());
      assertEquals(2, result.getLeftOut());
      String error = result.getFirstError();
      assertEquals(error, "line 3: ", error.substring(0, 8));
      assertTrue(error, error.length() > 8 && error.contains(row[1]));
    }
  }

  @Test
  public void readersThatFailAreToldOf() {
    Reader broken =
        new Reader() {
          @Override
          public int read(char[] buffer, int offset, int length) throws IOException {
            throw new IOException("gone");
          }

          @Override
          public void close() {}
        };
    try (Dataset dataset = Dataset.open(Scratch.BUNDLE, rows)) {
      assertThrows(IOException.class, () -> ExampleImport.read(broken, dataset));
    }
  }
}
