// Control groups as systems show them in /proc: which files hold the limit, and what they say.

#include "runtime/platform/linux/memory_group.h"
#include "runtime/tests/test_support.h"

using namespace mft;

namespace {

// Ubuntu 20.04: both versions mounted, the memory controller with version 1.
constexpr const char* kHybridGroups =
    "12:cpuset:/\n11:blkio:/user.slice\n10:memory:/user.slice/user-1000.slice/session-2.scope\n"
    "1:name=systemd:/user.slice/user-1000.slice/session-2.scope\n0::/user.slice/user-1000.slice/session-2.scope\n";
constexpr const char* kHybridMounts =
    "sysfs /sys sysfs rw,nosuid,nodev,noexec,relatime 0 0\n"
    "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nosuid,nodev,noexec,relatime,nsdelegate 0 0\n"
    "cgroup /sys/fs/cgroup/systemd cgroup rw,nosuid,nodev,noexec,relatime,xattr,name=systemd 0 0\n"
    "cgroup /sys/fs/cgroup/memory cgroup rw,nosuid,nodev,noexec,relatime,memory 0 0\n";

// Android 12 and later, Fedora, Debian 12: version 2 alone.
constexpr const char* kUnifiedGroups = "0::/uid_10234/pid_9876\n";
constexpr const char* kUnifiedMounts =
    "none /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime,memory_recursiveprot 0 0\n"
    "none /dev/cpuctl cgroup rw,nosuid,nodev,noexec,relatime,cpu 0 0\n";

// A Docker container of version 2 with a group namespace.
constexpr const char* kContainerGroups = "0::/\n";
constexpr const char* kContainerMounts = "cgroup /sys/fs/cgroup cgroup2 ro,nosuid,nodev,noexec,relatime 0 0\n";

void test_groups() {
  CHECK((find_memory_group(kHybridGroups, kHybridMounts) ==
         MemoryGroup{"/sys/fs/cgroup/memory", "/user.slice/user-1000.slice/session-2.scope", "memory.limit_in_bytes"}));
  CHECK((find_memory_group(kUnifiedGroups, kUnifiedMounts) ==
         MemoryGroup{"/sys/fs/cgroup", "/uid_10234/pid_9876", "memory.max"}));
  CHECK((find_memory_group(kContainerGroups, kContainerMounts) == MemoryGroup{"/sys/fs/cgroup", "/", "memory.max"}));
  CHECK(find_memory_group("", kUnifiedMounts).mount.empty());
  CHECK(find_memory_group(kUnifiedGroups, "").mount.empty());
  CHECK(find_memory_group("nonsense\n::\n", "a b\n\n").mount.empty());
  // Version 1 mounted without a memory controller, no version 2.
  CHECK(find_memory_group("3:cpu,cpuacct:/x\n", "cgroup /c cgroup rw,cpu,cpuacct 0 0\n").mount.empty());
}

void test_limits() {
  CHECK(parse_memory_limit("536870912\n") == 536870912);
  CHECK(parse_memory_limit("0\n") == 0);
  CHECK(parse_memory_limit("max\n") == UINT64_MAX);
  CHECK(parse_memory_limit("9223372036854771712\n") == UINT64_MAX);  // version 1's "none"
  CHECK(parse_memory_limit("") == UINT64_MAX);
}

}  // namespace

int main() {
  test_groups();
  test_limits();
  return mft_test::finish();
}
