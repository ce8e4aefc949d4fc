package ai.mobileft;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Options by name, with their values as text, as in docs/reference/options.md; names have underscores. Options that are
 * not set have their defaults. An object must not be used by several threads at the same time.
 */
public abstract class Options {
  private final int kind;
  private final Map<String, String> given = new LinkedHashMap<>();

  /** {@code kind} is one of {@link Native}'s. */
  Options(int kind) {
    this.kind = kind;
  }

  /**
   * Sets an option, such as "lr" to "1e-3". Ranges are checked by the call that uses the options.
   *
   * @throws IllegalArgumentException if the option does not exist
   * @throws MobileFtException if the value is not of the option's type
   */
  public final void set(String name, String value) {
    byte[] utf8Name = Utf8.bytes("name", name);
    byte[] utf8Value = Utf8.bytes("value", value);
    Native.checkOption(kind, utf8Name, utf8Value);
    given.put(name, value);
  }

  /**
   * An option's value as text, never null.
   *
   * @throws IllegalArgumentException if the option does not exist
   */
  public final String get(String name) {
    String value = given.get(name);
    if (value != null) return value;
    byte[] utf8Name = Utf8.bytes("name", name);
    byte[] standard = Native.defaultOption(kind, utf8Name);
    if (standard == null) throw new IllegalArgumentException("unknown option " + name);
    return Utf8.text(standard);
  }

  /** Arguments of {@link Native}: names and values in turn. */
  final byte[][] utf8() {
    byte[][] all = new byte[2 * given.size()][];
    int i = 0;
    for (Map.Entry<String, String> option : given.entrySet()) {
      all[i++] = Utf8.bytes("name", option.getKey());
      all[i++] = Utf8.bytes("value", option.getValue());
    }
    return all;
  }
}
