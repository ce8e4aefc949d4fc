#include "runtime/platform/pool_runner.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace mft {

void PoolRunner::enter(bool stays) {
  stays_ = stays;
  thread_local const pid_t id = static_cast<pid_t>(syscall(SYS_gettid));
  const std::lock_guard<std::mutex> lock(mutex_);
  clockid_t clock;
  if (pthread_getcpuclockid(pthread_self(), &clock) != 0) return;
  clock_ = clock;
  id_ = id;
}

void PoolRunner::end() {
  computes_ = false;
  // Whoever sets moving_ later sees that there is no item.
  if (moving_) send_back();
}

int64_t PoolRunner::run_time() const {
  timespec time;
  if (!computes_ || clock_gettime(clock_, &time) != 0) return -1;
  return static_cast<int64_t>(time.tv_sec) * 1000000000 + time.tv_nsec;
}

bool PoolRunner::bring_here() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int cpu = sched_getcpu();
  if (moved_ || cpu < 0 || sched_getaffinity(id_, sizeof(allowed_), &allowed_) != 0) return false;
  moving_ = true;
  if (!computes_) {
    moving_ = false;
    return false;
  }
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(cpu, &here);
  moved_ = sched_setaffinity(id_, sizeof(here), &here) == 0;
  moving_ = moved_;
  return moved_;
}

namespace {

// To any other core than this one that `allowed` has, and from there wherever the kernel likes.
void move_away(const cpu_set_t& allowed) {
  cpu_set_t others = allowed;
  const int cpu = sched_getcpu();
  if (cpu >= 0) CPU_CLR(cpu, &others);
  if (CPU_COUNT(&others) > 0) sched_setaffinity(0, sizeof(others), &others);
  sched_setaffinity(0, sizeof(allowed), &allowed);
}

}  // namespace

void PoolRunner::send_back() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!moved_) return;
  if (stays_) {
    sched_setaffinity(0, sizeof(allowed_), &allowed_);
  } else {
    move_away(allowed_);
  }
  moved_ = moving_ = false;
}

void PoolRunner::leave() {
  const std::lock_guard<std::mutex> lock(mutex_);
  cpu_set_t allowed;
  if (!moved_ && sched_getaffinity(0, sizeof(allowed), &allowed) == 0) move_away(allowed);
}

}  // namespace mft
