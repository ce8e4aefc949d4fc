#include "runtime/platform/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "runtime/platform/linux/memory_group.h"

namespace mft {
namespace {

/// The content of a file, or "" if it cannot be read. (Files in /proc have no size, so they cannot be mapped.)
std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

uint64_t memory_limit() {
  static const MemoryGroup group = find_memory_group(content_of("/proc/self/cgroup"), content_of("/proc/self/mounts"));
  if (group.mount.empty()) return 0;
  uint64_t tightest = UINT64_MAX;
  for (std::string path = group.path;; path.resize(path.rfind('/'))) {
    tightest = std::min(tightest, parse_memory_limit(content_of(group.mount + path + "/" + group.file)));
    if (path.empty() || path.rfind('/') == std::string::npos) break;
  }
  return tightest == UINT64_MAX ? 0 : tightest;
}

}  // namespace mft
