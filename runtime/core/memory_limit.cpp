#include "runtime/core/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace mft {
namespace {

/// Where the memory controller is mounted, and the path from there to this process's group.
struct Group {
  std::string mount;
  std::string path;
  const char* file;
};

Group find_group() {
  // Lines of /proc/self/cgroup: "id:controllers:path", "0::path" for version 2.
  std::string v1, v2;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers.find(",memory,") != std::string::npos) v1 = line.substr(second + 1);
    if (controllers == ",,") v2 = line.substr(second + 1);
  }
  // Lines of /proc/self/mounts: "device folder type options ...".
  Group group{};
  std::ifstream mounts("/proc/self/mounts");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream fields(line);
    std::string device, folder, type, options;
    fields >> device >> folder >> type >> options;
    options = "," + options + ",";
    if (type == "cgroup" && options.find(",memory,") != std::string::npos && !v1.empty()) {
      return {folder, v1, "/memory.limit_in_bytes"};
    }
    if (type == "cgroup2" && !v2.empty()) group = {folder, v2, "/memory.max"};
  }
  return group;
}

}  // namespace

uint64_t memory_limit() {
  static const Group group = find_group();
  if (group.mount.empty()) return 0;
  uint64_t tightest = UINT64_MAX;
  for (std::string path = group.path;; path.resize(path.rfind('/'))) {
    std::ifstream file(group.mount + path + group.file);
    uint64_t limit;
    if (file >> limit) tightest = std::min(tightest, limit);  // "max" is no number
    if (path.empty() || path.rfind('/') == std::string::npos) break;
  }
  return tightest < uint64_t{1} << 60 ? tightest : 0;  // version 1 says "none" with a huge number
}

}  // namespace mft
