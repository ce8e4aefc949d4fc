#include "runtime/base/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

namespace mft {
namespace {

constexpr uint64_t kNone = UINT64_MAX;

/// The content of a file, or "" if it cannot be read. (Files in /proc have no size, so they cannot be mapped.)
std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

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
  return text >> limit && limit < uint64_t{1} << 60 ? limit : kNone;
}

uint64_t memory_limit() {
  static const MemoryGroup group = find_memory_group(content_of("/proc/self/cgroup"), content_of("/proc/self/mounts"));
  if (group.mount.empty()) return 0;
  uint64_t tightest = kNone;
  for (std::string path = group.path;; path.resize(path.rfind('/'))) {
    tightest = std::min(tightest, parse_memory_limit(content_of(group.mount + path + "/" + group.file)));
    if (path.empty() || path.rfind('/') == std::string::npos) break;
  }
  return tightest == kNone ? 0 : tightest;
}

}  // namespace mft
