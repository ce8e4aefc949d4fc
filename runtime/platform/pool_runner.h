#pragma once

// A thread that computes items of the pool, as the others see it. Where another program has its core, an item stands
// still until the kernel comes back to it, some milliseconds later; a thread that has nothing left to compute then
// brings it to its own core.

#include <atomic>
#include <cstdint>
#include <mutex>

#if defined(__linux__)
#include <sched.h>
#include <time.h>
#endif

namespace mft {

class PoolRunner {
 public:
  // Called by the thread itself: this is it; an item begins; it is done. Where it was brought to another's core for the
  // item, it then leaves it, unless `stays`: the thread that gives out the items is the one that must not wait.
  void enter(bool stays);
  void begin() { computes_ = true; }
  void end();
  // Leaves the core that it has.
  void leave();

  // Nanoseconds that it has run so far, -1 where it has no item or they cannot be known.
  int64_t run_time() const;

  // Called by another thread: moves it to the core of this one, if it still has an item. Returns whether it did.
  bool bring_here();
  bool stays() const { return stays_; }

 private:
  std::atomic<bool> computes_{false}, stays_{false};
#if defined(__linux__)
  void send_back();

  std::atomic<bool> moving_{false};  // from before bring_here looks at computes_
  std::atomic<clockid_t> clock_{};
  std::mutex mutex_;  // of the rest
  bool moved_ = false;
  pid_t id_ = 0;
  cpu_set_t allowed_;  // before it was moved
#endif
};

}  // namespace mft
