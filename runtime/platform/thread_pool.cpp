#include "runtime/platform/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>

#include "runtime/platform/cpu.h"
#include "runtime/platform/flush_denormals.h"
#include "runtime/platform/thread_quality.h"

namespace mft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kClosed = UINT32_MAX;
constexpr int64_t kMostItems = INT32_MAX;
constexpr int64_t kMostPoolThreads = 255;
// How long a thread looks for the next job, and the caller for the end of items that others compute, before they sleep.
constexpr auto kLookForJob = std::chrono::microseconds(50), kLookForEnd = std::chrono::microseconds(20);
constexpr int kLooks = 64;  // between two looks at the clock

uint64_t ticket(uint32_t job, uint32_t item) { return static_cast<uint64_t>(job) << 32 | item; }
uint32_t job_of(uint64_t ticket) { return static_cast<uint32_t>(ticket >> 32); }
uint32_t item_of(uint64_t ticket) { return static_cast<uint32_t>(ticket); }

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Whether `done` within `limit`.
template <typename Done>
bool look(Clock::duration limit, const Done& done) {
  const auto end = Clock::now() + limit;
  do {
    for (int i = 0; i < kLooks; ++i) {
      if (done()) return true;
      pause();
    }
  } while (Clock::now() < end);
  return done();
}

}  // namespace

ThreadPool& ThreadPool::get() {
  static ThreadPool* const pool = new ThreadPool;  // never destroyed: its threads end with the process
  return *pool;
}

ThreadPool::ThreadPool() : ticket_(ticket(0, kClosed)) {
  const int64_t wanted = std::min(usable_cpus() - 1, kMostPoolThreads);
  runners_ = std::make_unique<PoolRunner[]>(static_cast<size_t>(wanted) + 1);
  try {
    for (; threads_ < wanted; ++threads_) {
      const int64_t worker = threads_ + 1;
      std::thread([this, worker] { work(worker); }).detach();
    }
  } catch (const std::system_error&) {  // as many as there could be
  }
}

bool ThreadPool::run(int64_t n, int64_t workers, Item item, const void* context) {
  if (!enabled_ || n > kMostItems || busy_.exchange(true)) return false;
  const FlushDenormals flush;
  const uint32_t job = job_of(ticket_) + 1;
  // No thread takes an item of the last job from now on, whatever it sees of the next lines.
  ticket_.exchange(ticket(job, kClosed));
  item_.store(item, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  workers_.store(workers, std::memory_order_relaxed);
  quality_.store(thread_quality(), std::memory_order_relaxed);
  unfinished_.store(n, std::memory_order_relaxed);
  items_.store(n, std::memory_order_release);
  ticket_.store(ticket(job, 0));
  if (sleepers_ > 0) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
    }
    new_job_.notify_all();
  }
  runners_[0].enter(true);
  for (int64_t i = claim(job); i >= 0; i = claim(job)) {
    runners_[0].begin();
    item(context, i, 0);
    unfinished_.fetch_sub(1);
    runners_[0].end();
  }
  const auto done = [this] { return unfinished_ == 0; };
  if (!look(kLookForEnd, done)) {
    rescue(0, done);
    // Asleep, this thread leaves its core to one of the pool's that had to leave its own.
    std::unique_lock<std::mutex> lock(mutex_);
    caller_sleeps_ = true;
    finished_.wait(lock, done);
    caller_sleeps_ = false;
  }
  busy_ = false;
  return true;
}

int64_t ThreadPool::claim(uint32_t job) {
  uint64_t next = ticket_;
  while (job_of(next) == job && item_of(next) != kClosed) {
    // Where this is already another job's, the exchange fails.
    if (item_of(next) >= items_.load(std::memory_order_acquire)) return -1;
    if (ticket_.compare_exchange_weak(next, next + 1)) return item_of(next);
  }
  return -1;
}

void ThreadPool::finish_item() {
  if (unfinished_.fetch_sub(1) > 1 || !caller_sleeps_) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
  }
  finished_.notify_one();
}

template <typename Done>
bool ThreadPool::rescue(int64_t worker, const Done& done) {
  const int64_t workers = std::min<int64_t>(workers_, size());
  int64_t before[kMostPoolThreads + 1];
  for (int64_t w = 0; w < workers; ++w) before[w] = w == worker ? -1 : runners_[w].run_time();
  if (look(kLookForEnd, done)) return false;
  for (int64_t w = 0; w < workers; ++w) {
    if (before[w] < 0 || runners_[w].run_time() != before[w]) continue;
    if (!runners_[w].bring_here()) return false;
    if (runners_[w].stays()) runners_[worker].leave();
    return true;
  }
  return false;
}

uint32_t ThreadPool::wait_for_job_after(uint32_t job, bool look_first) {
  const auto there = [&] { return job_of(ticket_) != job && item_of(ticket_) != kClosed; };
  if (!look_first || !look(kLookForJob, there)) {
    std::unique_lock<std::mutex> lock(mutex_);
    ++sleepers_;
    new_job_.wait(lock, there);
    --sleepers_;
  }
  return job_of(ticket_);
}

void ThreadPool::work(int64_t worker) {
  const FlushDenormals flush;
  runners_[worker].enter(false);
  bool look_first = true;
  int quality = thread_quality();
  for (uint32_t job = 0;;) {
    job = wait_for_job_after(job, look_first);
    look_first = true;
    if (worker >= workers_) continue;
    if (quality_ != quality) set_thread_quality(quality = quality_);
    for (int64_t i = claim(job); i >= 0; i = claim(job)) {
      runners_[worker].begin();
      item_.load()(context_.load(), i, worker);
      finish_item();
      runners_[worker].end();
    }
    const auto over = [&] { return unfinished_ == 0 || job_of(ticket_) != job; };
    // Asleep, this thread leaves its core to the one that it brought here.
    if (!look(kLookForEnd, over)) look_first = !rescue(worker, over);
  }
}

}  // namespace mft
