#include "runtime/platform/threads.h"

#include <utility>

#include "runtime/platform/cpu.h"
#include "runtime/platform/flush_denormals.h"
#include "runtime/platform/thread_pool.h"

namespace mft {
namespace {

thread_local int64_t thread_parts = 0;

/// Of the pool's threads as many as there are big cores.
int64_t default_parts() {
  static const int64_t big = big_cores();
  const int64_t all = ThreadPool::get().size();
  return std::clamp<int64_t>(big > 0 ? std::min(big, all) : all, 1, kMostThreads);
}

}  // namespace

ThreadParts::ThreadParts(int64_t parts) : before_(std::exchange(thread_parts, parts)) {}
ThreadParts::~ThreadParts() { thread_parts = before_; }

int thread_count() { return static_cast<int>(thread_parts > 0 ? thread_parts : default_parts()); }

void run_items(int64_t n, void (*item)(const void* context, int64_t i, int64_t worker), const void* context) {
  const int64_t workers = std::min<int64_t>(n, thread_count());
  if (workers > 1 && ThreadPool::get().run(n, workers, item, context)) return;
  const FlushDenormals flush;
  for (int64_t i = 0; i < n; ++i) item(context, i, 0);
}

}  // namespace mft
