package ai.mobileft;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import java.io.File;
import java.util.Scanner;
import org.junit.Test;

/** What trusting a key does, in a process of its own: no call takes it back. */
public class TrustTest {
  private static final String KEY =
      "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n"
          + "-----END PUBLIC KEY-----\n";

  @Test
  public void aBundleThatIsNotSigned() throws Exception {
    String java = new File(System.getProperty("java.home"), "bin/java").getPath();
    String library = "-Djava.library.path=" + System.getProperty("java.library.path");
    String classes = System.getProperty("java.class.path");
    Process process =
        new ProcessBuilder(java, library, "-cp", classes, "ai.mobileft.TrustTest", Scratch.BUNDLE.getPath())
            .redirectErrorStream(true)
            .start();
    try (Scanner output = new Scanner(process.getInputStream(), UTF_8.name()).useDelimiter("\\A")) {
      String text = output.hasNext() ? output.next() : "";
      assertTrue(text, text.contains("the bundle is not signed"));
      assertEquals(text, 0, process.waitFor());
    }
  }

  public static void main(String[] arguments) {
    File folder = new File(arguments[0]);
    Bundle.open(folder).close();
    Bundle.trust(KEY);
    try {
      Bundle.open(folder).close();
      System.exit(1);
    } catch (MobileFtException e) {
      System.out.println(e.getMessage());
    }
  }
}
