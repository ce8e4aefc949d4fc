#include "runtime/platform/cpu.h"

#include <sys/sysctl.h>

#include <algorithm>
#include <thread>

#include "runtime/platform/darwin/sysctl.h"

namespace mft {
namespace {

/// Darwin gives numbers of 4 or 8 bytes.
int64_t read_sysctl(const char* name) {
  union {
    int32_t four;
    int64_t eight;
  } value{};
  size_t size = sizeof(value);
  if (sysctlbyname(name, &value, &size, nullptr, 0) != 0) return 0;
  return size == sizeof(value.four) ? value.four : value.eight;
}

}  // namespace

std::string cpu_name() {
  char name[128];
  size_t size = sizeof(name);
  if (sysctlbyname("machdep.cpu.brand_string", name, &size, nullptr, 0) != 0 || size == 0) return "CPU";
  return {name, size - 1};  // without the 0 at its end
}

int64_t usable_cpus() { return std::max<int64_t>(std::thread::hardware_concurrency(), 1); }

int64_t big_cores() { return big_cores_of(read_sysctl); }

ArmFeatures arm_features() { return arm_features_of(read_sysctl); }

bool may_use_tiles() { return false; }

}  // namespace mft
