package ai.mobileft.app;

import java.io.IOException;

/** Opens the user's choice, in a thread that may wait for it. */
public interface Opening<T> {
  T open() throws IOException;
}
