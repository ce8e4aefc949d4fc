package ai.mobileft;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.File;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.util.Objects;

/** Text as the runtime takes it. JNI's own strings are no UTF-8: they spell emoji and NUL in another way. */
final class Utf8 {
  private Utf8() {}

  /** {@code name} is what errors call it. */
  static byte[] bytes(String name, String text) {
    Objects.requireNonNull(text, name);
    if (text.indexOf('\0') >= 0) {
      throw new IllegalArgumentException(name + ": has a NUL character, where text would end for the runtime");
    }
    try {
      ByteBuffer encoded = UTF_8.newEncoder().encode(CharBuffer.wrap(text));
      byte[] bytes = new byte[encoded.remaining()];
      encoded.get(bytes);
      return bytes;
    } catch (CharacterCodingException e) {
      throw new IllegalArgumentException(name + ": has half of a surrogate pair, which is no character", e);
    }
  }

  static byte[] path(String name, File file) {
    Objects.requireNonNull(file, name);
    return bytes(name, file.getPath());
  }

  static byte[] pathOrNull(String name, File file) {
    return file == null ? null : path(name, file);
  }

  static String text(byte[] utf8) {
    return new String(utf8, UTF_8);
  }
}
