package ai.mobileft;

import java.util.List;
import java.util.Objects;

/** One message of a chat. No part of it is null. */
public final class Message {
  private final String role;
  private final String content;

  /** Creates a message with the role "system", "user" or "assistant". */
  public Message(String role, String content) {
    this.role = Objects.requireNonNull(role, "role");
    this.content = Objects.requireNonNull(content, "content");
  }

  public static Message system(String content) {
    return new Message("system", content);
  }

  public static Message user(String content) {
    return new Message("user", content);
  }

  public static Message assistant(String content) {
    return new Message("assistant", content);
  }

  public String getRole() {
    return role;
  }

  public String getContent() {
    return content;
  }

  /** Arguments of {@link Native}: roles and contents in turn. */
  static byte[][] utf8(List<Message> messages) {
    byte[][] all = new byte[2 * messages.size()][];
    int i = 0;
    for (Message message : messages) {
      all[i++] = Utf8.bytes("role", message.role);
      all[i++] = Utf8.bytes("content", message.content);
    }
    return all;
  }
}
