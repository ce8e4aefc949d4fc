package ai.mobileft;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.util.Arrays;
import java.util.Collections;
import java.util.Map;
import org.junit.Test;

public class JsonTest {
  @Test
  public void readsAllKindsOfValues() {
    Map<?, ?> values =
        Json.object(
            " {\"a\" : [1, -2.5e-3, true, false, null, [], {}],\n"
                + "\"b\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83D\\uDE00 é\"} ");
    assertEquals(
        Arrays.asList(1.0, -2.5e-3, true, false, null, Collections.emptyList(), Collections.emptyMap()),
        values.get("a"));
    assertEquals("\"\\/\b\f\n\r\té\uD83D\uDE00 é", values.get("b"));
    assertEquals(2, values.size());
    assertTrue(Json.object("{}").isEmpty());
  }

  @Test
  public void refusesAllElse() {
    String deep = String.join("", Collections.nCopies(100000, "[")); // no stack overflow either
    for (String text :
        new String[] {
          "", "{", "[]", "1", "{}x", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{\"a\":[1,]}", "{\"a\":[1 2]}", "{a:1}",
          "{\"a\":01}", "{\"a\":+1}", "{\"a\":.5}", "{\"a\":NaN}", "{\"a\":0x1}", "{\"a\":1d}", "{\"a\":tru}",
          "{\"a\":\"b", "{\"a\":\"\n\"}", "{\"a\":\"\\x\"}", "{\"a\":\"\\u12\"}", "{\"a\":\"\\u+123\"}",
          "{\"a\":\"\\", "{\"a\":" + deep
        }) {
      assertThrows(text, MobileFtException.class, () -> Json.object(text));
    }
  }
}
