#include <algorithm>
#include <cmath>

#include "runtime/schedule/schedule.h"

namespace mft {
namespace {

/// Trains all layers first, then freezes them one by one from the bottom, most of them early. After the fraction t of
/// the run, the fraction (1 - t)^(1 / ratio - 1) of the layers is left, which is `ratio` on average. A ratio of 1/4 is
/// the cubic schedule of FreezeOut (arXiv 1706.04983).
std::vector<bool> select(const Schedule& schedule, int64_t step, int64_t layers) {
  const double left = 1 - (static_cast<double>(step) + 0.5) / static_cast<double>(std::max<int64_t>(1, schedule.steps));
  const int64_t trained = share_of(std::pow(std::max(left, 0.0), 1 / schedule.ratio - 1), layers);
  std::vector<bool> selected(static_cast<size_t>(layers), true);
  std::fill_n(selected.begin(), layers - trained, false);
  return selected;
}

}  // namespace

const ScheduleRule kFreeze = {"freeze", select, [](const Schedule&, int64_t layers) { return layers; }, Rest::kFrozen};

}  // namespace mft
