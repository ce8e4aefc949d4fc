#include "runtime/platform/cpu.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "runtime/platform/linux/core_speeds.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace mft {

/// On x86.
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  }
  return "CPU";
}

int64_t usable_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return std::max<int64_t>(std::thread::hardware_concurrency(), 1);
}

int64_t big_cores() { return big_cores_in("/sys/devices/system/cpu"); }

#if defined(__aarch64__)
ArmFeatures arm_features() {
  constexpr unsigned long kSha2 = 1ul << 6, kAsimdDp = 1ul << 20;  // of AT_HWCAP
  constexpr unsigned long kI8mm = 1ul << 13;                       // of AT_HWCAP2
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  return {(first & kAsimdDp) != 0, (second & kI8mm) != 0, (first & kSha2) != 0};
}
#else
ArmFeatures arm_features() { return {}; }
#endif

#if defined(__x86_64__)
bool may_use_tiles() {
  constexpr int kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA of Linux 5.16
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}
#else
bool may_use_tiles() { return false; }
#endif

}  // namespace mft
