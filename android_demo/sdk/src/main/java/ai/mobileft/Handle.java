package ai.mobileft;

import java.util.function.LongConsumer;
import java.util.function.LongFunction;
import java.util.function.Supplier;

/** A native object, open or closed. It takes one call at a time. */
final class Handle {
  private final String owner;
  private final Turn turn = new Turn();
  private final LongConsumer free;
  /** 0 after closing. Written only within a call and under the lock, because {@link #ifOpen} is not a call. */
  private volatile long pointer;

  /** {@code open} creates the native object of {@code owner}, and {@code free} frees it. */
  Handle(String owner, Supplier<Long> open, LongConsumer free) {
    this.owner = owner;
    this.free = free;
    this.pointer = open.get();
  }

  /** Runs a call. Throws BusyException if another call is running, and IllegalStateException if this is closed. */
  <T> T call(String name, LongFunction<T> body) {
    return turn.take(
        owner + "." + name,
        () -> {
          requireOpen();
          return body.apply(pointer);
        });
  }

  void run(String name, LongConsumer body) {
    call(
        name,
        object -> {
          body.accept(object);
          return null;
        });
  }

  /** Reads a property that never changes, even while a call is running. */
  synchronized <T> T ask(LongFunction<T> body) {
    requireOpen();
    return body.apply(pointer);
  }

  private void requireOpen() {
    if (pointer == 0) throw new IllegalStateException(owner + " is closed");
  }

  /** Runs an action that is allowed at any time, even while a call is running. Does nothing if this is closed. */
  synchronized void ifOpen(LongConsumer body) {
    if (pointer != 0) body.accept(pointer);
  }

  void close() {
    if (pointer != 0) turn.take(owner + ".close", this::release);
  }

  /** The lock keeps {@link #ifOpen} from using freed memory. Another thread may already have closed this object. */
  private synchronized Void release() {
    if (pointer != 0) free.accept(pointer);
    pointer = 0;
    return null;
  }
}
