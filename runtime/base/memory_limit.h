#pragma once

#include <cstdint>
#include <string>

namespace mft {

/// The tightest memory limit of this process's control groups (v1 or v2) in bytes, 0 where there is none.
uint64_t memory_limit();

/// Where the memory controller is mounted, and the path from there to a process's group.
struct MemoryGroup {
  std::string mount;  // empty where there is none
  std::string path;
  std::string file;  // the limit's in each group's folder

  bool operator==(const MemoryGroup& other) const {
    return mount == other.mount && path == other.path && file == other.file;
  }
};

/// The group, from the contents of /proc/self/cgroup and /proc/self/mounts.
MemoryGroup find_memory_group(const std::string& cgroup, const std::string& mounts);

/// The limit that such a file's content says, UINT64_MAX for none: version 2 says "max", version 1 a huge number.
uint64_t parse_memory_limit(const std::string& content);

}  // namespace mft
