#include "runtime/core/random.h"
#include "runtime/core/schedule.h"

namespace mft {
namespace {

/// round(ratio x layers) layers, drawn anew every `period` steps (LISA, arXiv 2403.17919).
std::vector<bool> select(const Schedule& schedule, int64_t step, int64_t layers) {
  const int64_t count = share_of(schedule.ratio, layers);
  const auto order = Random(schedule.seed, static_cast<uint64_t>(step / schedule.period)).permutation(layers);
  std::vector<bool> selected(static_cast<size_t>(layers));
  for (int64_t i = 0; i < count; ++i) selected[static_cast<size_t>(order[static_cast<size_t>(i)])] = true;
  return selected;
}

}  // namespace

const ScheduleRule kLisa = {"lisa", select,
                            [](const Schedule& schedule, int64_t layers) { return share_of(schedule.ratio, layers); },
                            Rest::kPassedThrough};

}  // namespace mft
