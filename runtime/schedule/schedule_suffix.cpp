#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/schedule/schedule.h"

namespace mft {
namespace {

std::vector<int64_t> depth_cycle(const Schedule& schedule, int64_t layers) {
  std::vector<int64_t> depths = schedule.suffix_depths;
  if (depths.empty()) {
    for (const double factor : {0.5, 1.0, 1.5, 1.0}) depths.push_back(share_of(schedule.ratio * factor, layers));
  }
  for (const int64_t depth : depths) {
    if (depth < 1 || depth > layers)
      fail("suffix depth ", depth, ": must be from 1 to ", layers, ", the number of layers");
  }
  return depths;
}

/// Selects the top d layers; d cycles from step to step.
std::vector<bool> select(const Schedule& schedule, int64_t step, int64_t layers) {
  const std::vector<int64_t> depths = depth_cycle(schedule, layers);
  const int64_t depth = depths[static_cast<size_t>(step) % depths.size()];
  std::vector<bool> selected(static_cast<size_t>(layers));
  std::fill(selected.end() - depth, selected.end(), true);
  return selected;
}

int64_t most_selected(const Schedule& schedule, int64_t layers) {
  const std::vector<int64_t> depths = depth_cycle(schedule, layers);
  return *std::max_element(depths.begin(), depths.end());
}

}  // namespace

const ScheduleRule kSuffix = {"suffix", select, most_selected};

}  // namespace mft
