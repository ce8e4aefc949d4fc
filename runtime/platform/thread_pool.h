#pragma once

// The threads that the loops of runtime/platform/threads.h share.
//
// A job is done when its items are: a thread that the kernel does not run, because another program has its core, takes
// no item and is not waited for. A thread that has an item and no core gets the core of one that has no item left
// (pool_runner.h). Between two jobs a thread looks for the next one for some microseconds before it sleeps, since a
// model's ops follow each other closely.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "runtime/platform/pool_runner.h"

namespace mft {

class ThreadPool {
 public:
  using Item = void (*)(const void* context, int64_t i, int64_t worker);

  // The pool of this process, with a thread for each CPU that the process may use, but for the caller's.
  static ThreadPool& get();

  // item(context, i, worker) for i in [0, n), on this thread, which is worker 0, and on up to workers - 1 others.
  // Returns false, having done nothing, if the pool works for another thread, or for an item of this one.
  bool run(int64_t n, int64_t workers, Item item, const void* context);

  // The threads that can work on a job, the caller's included.
  int64_t size() const { return threads_ + 1; }

  // Off: `run` returns false. For tests.
  void enable(bool on) { enabled_ = on; }

 private:
  ThreadPool();
  void work(int64_t worker);
  // The number of an item of job `number` that is now this thread's, or -1 if none is left.
  int64_t claim(uint32_t number);
  void finish_item();
  // Whether another thread that has an item stands still; it is brought here. Called by `worker`, for which nothing is
  // left to do but to wait for `done`.
  template <typename Done>
  bool rescue(int64_t worker, const Done& done);
  // `look_first`: before it sleeps.
  uint32_t wait_for_job_after(uint32_t number, bool look_first);

  std::atomic<bool> busy_{false}, enabled_{true};
  // The number of the job in the upper half, and of its next item in the lower one. kClosed: there is none.
  std::atomic<uint64_t> ticket_;
  std::atomic<int64_t> items_{0}, unfinished_{0}, workers_{0};
  std::atomic<Item> item_{nullptr};
  std::atomic<const void*> context_{nullptr};
  std::atomic<int> quality_{0};  // of the caller

  std::mutex mutex_;
  std::condition_variable new_job_, finished_;
  std::atomic<int64_t> sleepers_{0};
  std::atomic<bool> caller_sleeps_{false};
  int64_t threads_ = 0;
  std::unique_ptr<PoolRunner[]> runners_;  // by worker
};

}  // namespace mft
