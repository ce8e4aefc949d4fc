#include "runtime/base/error.h"
#include "runtime/schedule/schedule.h"

namespace mft {
namespace {

/// Selects round(ratio x layers) layers: random ones at every step, blocks in turn, or every k-th layer in turn.
std::vector<bool> select(const Schedule& schedule, int64_t step, int64_t layers) {
  std::vector<bool> selected(static_cast<size_t>(layers));
  const int64_t count = share_of(schedule.ratio, layers);
  switch (schedule.selection) {
    case Selection::kRandom:
      return drawn_layers(schedule, step, layers);
    case Selection::kContiguous:
      for (int64_t i = 0; i < count; ++i) selected[static_cast<size_t>((step * count + i) % layers)] = true;
      return selected;
    case Selection::kStrided:
      for (int64_t i = 0; i < layers; ++i) selected[static_cast<size_t>(i)] = (i + step) * count % layers < count;
      return selected;
  }
  fail("selection ", static_cast<int>(schedule.selection), " is unknown");
}

}  // namespace

const ScheduleRule kLcsb = {
    "lcsb",          select, [](const Schedule& schedule, int64_t layers) { return share_of(schedule.ratio, layers); },
    Rest::kIdentity, false,  0.5};

}  // namespace mft
