package ai.mobileft;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Parses the runtime's JSON to Map, List, String, Double, Boolean and null. Android includes a JSON library, but a
 * desktop JVM does not.
 */
final class Json {
  private static final int MAX_DEPTH = 32;

  private final String text;
  private int at;

  private Json(String text) {
    this.text = text;
  }

  /** @throws MobileFtException if {@code text} is not a JSON object */
  static Map<?, ?> object(String text) {
    Json json = new Json(text);
    Object value = json.value(0);
    json.skipSpace();
    if (json.at < text.length() || !(value instanceof Map)) throw json.error();
    return (Map<?, ?>) value;
  }

  /** NaN if there is none. */
  static double number(Object value) {
    return value instanceof Double ? (Double) value : Double.NaN;
  }

  /** -1 if there is none. */
  static long integer(Object value) {
    return value instanceof Double ? Math.round((Double) value) : -1;
  }

  /** Bytes of a value in MB of 10^6 bytes; -1 if there is none. */
  static long bytesOfMb(Object value) {
    return value instanceof Double ? Math.round((Double) value * 1e6) : -1;
  }

  private MobileFtException error() {
    return new MobileFtException("invalid JSON at character " + at);
  }

  private void skipSpace() {
    while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) ++at;
  }

  /** Reads the next character; 0 at the end. */
  private char next() {
    return at < text.length() ? text.charAt(at++) : 0;
  }

  /** Skips white space, and reads {@code expected} if it is next. */
  private boolean accept(char expected) {
    skipSpace();
    boolean found = at < text.length() && text.charAt(at) == expected;
    if (found) ++at;
    return found;
  }

  private void require(char expected) {
    if (!accept(expected)) throw error();
  }

  private Object value(int depth) {
    if (depth > MAX_DEPTH) throw error();
    if (accept('{')) return members(depth);
    if (accept('[')) return elements(depth);
    if (accept('"')) return string();
    int begin = at;
    while (at < text.length() && ",]} \t\r\n".indexOf(text.charAt(at)) < 0) ++at;
    return scalar(text.substring(begin, at));
  }

  private Map<String, Object> members(int depth) {
    Map<String, Object> members = new LinkedHashMap<>();
    if (accept('}')) return members;
    do {
      require('"');
      String name = string();
      require(':');
      members.put(name, value(depth + 1));
    } while (accept(','));
    require('}');
    return members;
  }

  private List<Object> elements(int depth) {
    List<Object> elements = new ArrayList<>();
    if (accept(']')) return elements;
    do {
      elements.add(value(depth + 1));
    } while (accept(','));
    require(']');
    return elements;
  }

  /** Parses a string after its opening quote. */
  private String string() {
    StringBuilder string = new StringBuilder();
    for (char c = next(); c != '"'; c = next()) {
      if (c < ' ') throw error();
      string.append(c == '\\' ? escaped() : c);
    }
    return string.toString();
  }

  private char escaped() {
    char c = next();
    if (c == 'u') {
      if (text.length() - at < 4) throw error();
      String digits = text.substring(at, at + 4);
      if (!digits.matches("[0-9a-fA-F]{4}")) throw error();
      at += 4;
      return (char) Integer.parseInt(digits, 16);
    }
    int index = "\"\\/bfnrt".indexOf(c);
    if (c == 0 || index < 0) throw error();
    return "\"\\/\b\f\n\r\t".charAt(index);
  }

  private Object scalar(String word) {
    switch (word) {
      case "null":
        return null;
      case "true":
        return true;
      case "false":
        return false;
      default:
        if (!word.matches("-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][-+]?[0-9]+)?")) throw error();
        return Double.valueOf(word);
    }
  }
}
