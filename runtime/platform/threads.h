#pragma once

// Loops over the thread pool. Items are handed out as threads come free (cores of a phone differ in speed), so an item
// must compute the same result whichever thread runs it. While the pool works for one thread, loops of other threads
// run on these alone. On x86-64, items compute with 0 in place of denormals.

#include <algorithm>
#include <cstdint>

namespace mft {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

constexpr int64_t kMostThreads = 256;

// While it lives, loops of this thread are split into `parts` parts; 0: one for each big core. Scratch is sized and
// used under the same number of parts.
class ThreadParts {
 public:
  explicit ThreadParts(int64_t parts);
  ~ThreadParts();
  ThreadParts(const ThreadParts&) = delete;
  ThreadParts& operator=(const ThreadParts&) = delete;

 private:
  const int64_t before_;
};

// The number of parts of this thread's loops.
int thread_count();

// item(context, i, worker) for i in [0, n); see `parallel_for_worker`.
void run_items(int64_t n, void (*item)(const void* context, int64_t i, int64_t worker), const void* context);

// f(i, worker) for i in [0, n); worker < thread_count() names scratch no other running item uses.
template <typename F>
void parallel_for_worker(int64_t n, const F& f) {
  run_items(
      n, [](const void* context, int64_t i, int64_t worker) { (*static_cast<const F*>(context))(i, worker); }, &f);
}

// f(i) for i in [0, n).
template <typename F>
void parallel_for(int64_t n, const F& f) {
  parallel_for_worker(n, [&](int64_t i, int64_t) { f(i); });
}

// f(begin, end) for consecutive ranges of at most `step` items that cover [0, n).
template <typename F>
void parallel_ranges(int64_t n, int64_t step, const F& f) {
  parallel_for(ceil_div(n, step), [&](int64_t i) { f(i * step, std::min(n, (i + 1) * step)); });
}

}  // namespace mft
