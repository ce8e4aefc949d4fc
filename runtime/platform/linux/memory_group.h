#pragma once

#include <cstdint>
#include <string>

namespace mft {

/// The mount point of the memory controller, and the path from there to a process's control group (v1 or v2).
struct MemoryGroup {
  std::string mount;  // empty if there is none
  std::string path;
  std::string file;  // name of the file with the limit in each group's folder

  bool operator==(const MemoryGroup& other) const {
    return mount == other.mount && path == other.path && file == other.file;
  }
};

/// The group, from the contents of /proc/self/cgroup and /proc/self/mounts.
MemoryGroup find_memory_group(const std::string& cgroup, const std::string& mounts);

/// Parses the content of such a file. Returns UINT64_MAX for no limit, which is "max" in version 2 and a huge number in
/// version 1.
uint64_t parse_memory_limit(const std::string& content);

}  // namespace mft
