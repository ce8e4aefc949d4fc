#include "runtime/schedule/schedule.h"

namespace mft {
namespace {

/// Selects round(ratio x layers) random layers, again every `period` steps (LISA, arXiv 2403.17919).
std::vector<bool> select(const Schedule& schedule, int64_t step, int64_t layers) {
  return drawn_layers(schedule, step / schedule.period, layers);
}

}  // namespace

const ScheduleRule kLisa = {"lisa",
                            select,
                            [](const Schedule& schedule, int64_t layers) { return share_of(schedule.ratio, layers); },
                            Rest::kPassedThrough,
                            false,
                            4};

}  // namespace mft
