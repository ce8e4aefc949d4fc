#include "runtime/plan/arena.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/platform/pages.h"

namespace mft {

uint64_t arena_bytes(const Program& program, const std::map<std::string, CallTokens>& methods) {
  std::vector<std::pair<uint64_t, uint64_t>> touched;
  for (const auto& [method, tokens] : methods) {
    const uint64_t used = static_cast<uint64_t>(tokens.used), all = static_cast<uint64_t>(tokens.most);
    for (const ArenaTensor& tensor : program.arena_tensors(method)) {
      const uint64_t begin = tensor.offset / page_bytes() * page_bytes();
      touched.emplace_back(begin, round_to_pages(tensor.offset + (tensor.bytes * used + all - 1) / all));
    }
  }
  std::sort(touched.begin(), touched.end());
  uint64_t total = 0, covered = 0;
  for (const auto& [begin, end] : touched) {
    if (end <= covered) continue;
    total += end - std::max(begin, covered);
    covered = end;
  }
  return total;
}

}  // namespace mft
