#pragma once

// Loops over ExecuTorch's thread pool. Items are handed out as threads come free (cores of a phone
// differ in speed), so an item must compute the same result whichever thread runs it.

#include <executorch/runtime/kernel/thread_parallel_interface.h>
#include <executorch/runtime/platform/assert.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace mft {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

constexpr int64_t kMostThreads = 256;

// How many parts work is split into, set before any scratch is sized; 0: as many as the pool has threads.
inline int thread_parts = 0;

inline int thread_count() {
  return thread_parts > 0
             ? thread_parts
             : static_cast<int>(std::clamp<int64_t>(executorch::extension::get_thread_count(), 1, kMostThreads));
}

// f(i, worker) for i in [0, n); worker < thread_count() names scratch no other running item uses.
template <typename F>
void parallel_for_worker(int64_t n, const F& f) {
  const int64_t workers = std::min<int64_t>(n, thread_count());
  if (workers <= 1) {
    for (int64_t i = 0; i < n; ++i) f(i, int64_t{0});
    return;
  }
  std::atomic<int64_t> next{0};
  const bool ok = executorch::extension::parallel_for(0, workers, 1, [&](int64_t begin, int64_t end) {
    for (int64_t worker = begin; worker < end; ++worker) {
      for (int64_t i = next++; i < n; i = next++) f(i, worker);
    }
  });
  ET_CHECK_MSG(ok, "parallel_for failed");
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
