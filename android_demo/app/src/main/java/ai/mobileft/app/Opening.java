package ai.mobileft.app;

import java.io.IOException;

/** Opens, in a thread that may wait for it, what the user chose. */
public interface Opening<T> {
  T open() throws IOException;
}
