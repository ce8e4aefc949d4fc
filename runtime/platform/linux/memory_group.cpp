#include "runtime/platform/linux/memory_group.h"

#include <sstream>

namespace mft {

MemoryGroup find_memory_group(const std::string& cgroup, const std::string& mounts) {
  // Lines "id:controllers:path", "0::path" for version 2.
  std::string v1, v2;
  std::istringstream groups(cgroup);
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers.find(",memory,") != std::string::npos) v1 = line.substr(second + 1);
    if (controllers == ",,") v2 = line.substr(second + 1);
  }
  // Lines "device folder type options ...".
  MemoryGroup group;
  std::istringstream lines(mounts);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string device, folder, type, options;
    fields >> device >> folder >> type >> options;
    options = "," + options + ",";
    if (type == "cgroup" && options.find(",memory,") != std::string::npos && !v1.empty()) {
      return {folder, v1, "memory.limit_in_bytes"};
    }
    if (type == "cgroup2" && !v2.empty()) group = {folder, v2, "memory.max"};
  }
  return group;
}

uint64_t parse_memory_limit(const std::string& content) {
  std::istringstream text(content);
  uint64_t limit = 0;
  return text >> limit && limit < uint64_t{1} << 60 ? limit : UINT64_MAX;
}

}  // namespace mft
