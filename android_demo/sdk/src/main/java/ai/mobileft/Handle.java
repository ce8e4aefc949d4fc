package ai.mobileft;

import java.util.function.LongConsumer;
import java.util.function.LongFunction;
import java.util.function.Supplier;

/** A native object: open or closed, and used by one call at a time. */
final class Handle {
  private final String owner;
  private final Turn turn = new Turn();
  private final LongConsumer free;
  /** 0 once closed. Written in a call of one's own only, and under the lock, since {@link #ifOpen} is no call. */
  private volatile long pointer;

  /** {@code open} gives the native object of an {@code owner}, and {@code free} takes it. */
  Handle(String owner, Supplier<Long> open, LongConsumer free) {
    this.owner = owner;
    this.free = free;
    this.pointer = open.get();
  }

  /** Makes a call. BusyException if another one is in progress, and IllegalStateException if this is closed. */
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

  /** Asks for something that never changes, even while a call is in progress. */
  synchronized <T> T ask(LongFunction<T> body) {
    requireOpen();
    return body.apply(pointer);
  }

  private void requireOpen() {
    if (pointer == 0) throw new IllegalStateException(owner + " is closed");
  }

  /** What may be done at any time, even while a call is in progress. Nothing happens once this is closed. */
  synchronized void ifOpen(LongConsumer body) {
    if (pointer != 0) body.accept(pointer);
  }

  void close() {
    if (pointer != 0) turn.take(owner + ".close", this::release);
  }

  /** The lock keeps {@link #ifOpen} from what is being freed, and another thread may have closed this meanwhile. */
  private synchronized Void release() {
    if (pointer != 0) free.accept(pointer);
    pointer = 0;
    return null;
  }
}
