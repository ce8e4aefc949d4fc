// parallel_for: its items flush denormals, with one thread and with several, and the caller's arithmetic stays. The
// pool: each item once, workers apart, jobs of several threads and jobs inside of items; a thread that stands still is
// brought to another's core, and sent back.

#include <algorithm>
#include <array>
#include <atomic>
#include <cfloat>
#include <chrono>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "runtime/platform/thread_pool.h"
#include "runtime/platform/threads.h"
#include "runtime/tests/test_support.h"

using namespace mft;
using namespace mft_test;

namespace {

// Many small jobs, so that threads come late, sleep and wake.
void test_jobs() {
  const ThreadParts parts(3);
  for (int64_t n : {1, 2, 3, 7, 100, 1000}) {
    for (int round = 0; round < 200; ++round) {
      std::vector<int> counts(static_cast<size_t>(n));
      std::array<std::atomic<int>, 3> running{};
      std::atomic<int> wrong{0};
      parallel_for_worker(n, [&](int64_t i, int64_t worker) {
        const auto mine = static_cast<size_t>(worker);
        wrong += mine >= running.size() || running[mine]++ != 0;
        ++counts[static_cast<size_t>(i)];
        --running[mine];
      });
      CHECK(wrong == 0);
      for (const int count : counts) CHECK(count == 1);
    }
    if (n == 7) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void test_jobs_of_several_threads() {
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) parallel_for(50, [&](int64_t i) { sum += i; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(sum == int64_t{4} * 200 * (49 * 50 / 2));
}

void test_a_job_inside_an_item() {
  std::atomic<int64_t> sum{0};
  parallel_for(8, [&](int64_t) { parallel_for(8, [&](int64_t i) { sum += i; }); });
  CHECK(sum == 8 * 28);
}

#if defined(__linux__)
std::vector<int> allowed_cpus(pid_t thread) {
  cpu_set_t set;
  CHECK(sched_getaffinity(thread, sizeof(set), &set) == 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void test_a_thread_brought_here(bool stays) {
  PoolRunner runner;
  std::atomic<pid_t> id{0};
  std::atomic<bool> stop{false};
  std::vector<int> after;
  CHECK(!runner.bring_here());  // no thread yet
  std::thread thread([&] {
    runner.enter(stays);
    runner.begin();
    id = static_cast<pid_t>(syscall(SYS_gettid));
    while (!stop) std::this_thread::yield();
    runner.end();
    runner.leave();
    after = allowed_cpus(0);
  });
  while (id == 0) std::this_thread::yield();
  const std::vector<int> before = allowed_cpus(id);
  const int64_t start = runner.run_time();
  while (runner.run_time() == start) std::this_thread::yield();
  CHECK(runner.bring_here());
  const std::vector<int> here = allowed_cpus(id);
  CHECK(here.size() == 1 && std::find(before.begin(), before.end(), here[0]) != before.end());
  CHECK(!runner.bring_here());  // again, which must not take this for what was allowed
  stop = true;
  thread.join();
  CHECK(after == before);
  CHECK(runner.run_time() == -1);
  CHECK(!runner.bring_here());  // it has no item any more
}
#endif

}  // namespace

int main() {
  test_jobs();
  test_jobs_of_several_threads();
  test_a_job_inside_an_item();
#if defined(__linux__)
  for (const bool stays : {false, true}) test_a_thread_brought_here(stays);
#endif
  const volatile float smallest = FLT_MIN, half = 0.5f;  // volatile: computed at run time
  for (const int64_t threads : {1, 2}) {
    const ThreadParts parts(threads);
    std::array<float, 64> results{}, inputs{};
    const volatile float denormal = smallest * half;
    CHECK(denormal > 0);
    parallel_for(64, [&](int64_t i) {
      results[i] = smallest * half;
      inputs[i] = denormal * 2.f;
    });
    for (int64_t i = 0; i < 64; ++i) {
#if defined(__x86_64__)
      CHECK(results[i] == 0 && inputs[i] == 0);
#else
      CHECK(results[i] == denormal && inputs[i] == smallest);
#endif
    }
    CHECK(smallest * half == denormal && denormal * 2.f == smallest);
  }
  return finish();
}
