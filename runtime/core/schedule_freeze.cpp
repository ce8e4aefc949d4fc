#include <algorithm>

#include "runtime/core/schedule.h"

namespace mft {
namespace {

constexpr double kAllTrained = 0.1;  // share of the run before the first layer freezes

/// Every layer at first; then the lowest freeze one by one, evenly over the rest of the run, until at its end
/// round(ratio x layers) are left (after AutoFreeze, arXiv 2102.01386).
std::vector<bool> select(const Schedule& schedule, int64_t step, int64_t layers) {
  const double done = static_cast<double>(step) / static_cast<double>(std::max<int64_t>(1, schedule.steps));
  const double share = std::clamp((done - kAllTrained) / (1 - kAllTrained), 0.0, 1.0);
  const int64_t most = layers - share_of(schedule.ratio, layers);  // that freeze
  const int64_t frozen = std::min(most, static_cast<int64_t>(share * static_cast<double>(most + 1)));
  std::vector<bool> selected(static_cast<size_t>(layers), true);
  std::fill_n(selected.begin(), frozen, false);
  return selected;
}

}  // namespace

const ScheduleRule kFreeze = {"freeze", select, [](const Schedule&, int64_t layers) { return layers; }, Rest::kFrozen};

}  // namespace mft
