package ai.mobileft;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.File;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.util.Objects;

/** Converts text to UTF-8 for the runtime. JNI's own strings are not UTF-8: they encode emoji and NUL differently. */
final class Utf8 {
  private Utf8() {}

  /** {@code name} is the name in errors. */
  static byte[] bytes(String name, String text) {
    Objects.requireNonNull(text, name);
    if (text.indexOf('\0') >= 0) {
      throw new IllegalArgumentException(name + ": has a NUL character, which the runtime does not support");
    }
    try {
      ByteBuffer encoded = UTF_8.newEncoder().encode(CharBuffer.wrap(text));
      byte[] bytes = new byte[encoded.remaining()];
      encoded.get(bytes);
      return bytes;
    } catch (CharacterCodingException e) {
      throw new IllegalArgumentException(name + ": has an unpaired surrogate, which is not a character", e);
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
