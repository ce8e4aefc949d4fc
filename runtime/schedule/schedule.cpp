#include "runtime/schedule/schedule.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/base/random.h"

namespace mft {

const std::vector<const ScheduleRule*>& schedule_rules() {
  static const std::vector<const ScheduleRule*> rules = {&kFull, &kLcsb, &kSuffix, &kLisa, &kFreeze, &kDropBP};
  return rules;
}

namespace {

void check(const Schedule& schedule) {
  const double ratio = schedule.ratio;
  if (!(ratio > 0.0 && ratio <= 1.0)) fail("ratio ", ratio, ": must be above 0 and at most 1");
  if (schedule.period < 1) fail("period ", schedule.period, ": must be at least 1 step");
}

}  // namespace

std::vector<bool> Schedule::select(int64_t step, int64_t layers) const {
  check(*this);
  return rule->select(*this, step, layers);
}

int64_t Schedule::most_selected(int64_t layers) const {
  check(*this);
  return rule->most_selected(*this, layers);
}

std::vector<bool> Schedule::with_backward(const std::vector<bool>& selected) const {
  std::vector<bool> runs = selected;
  if (rule->rest == Rest::kPassedThrough) std::fill(std::find(runs.begin(), runs.end(), true), runs.end(), true);
  return runs;
}

int64_t Schedule::most_with_backward(int64_t layers) const {
  return rule->rest == Rest::kPassedThrough ? layers : most_selected(layers);
}

int64_t share_of(double ratio, int64_t layers) {
  return std::clamp<int64_t>(std::llround(ratio * static_cast<double>(layers)), 1, layers);
}

std::vector<bool> drawn_layers(const Schedule& schedule, int64_t number, int64_t layers) {
  const auto order = Random(schedule.seed, static_cast<uint64_t>(number)).permutation(layers);
  std::vector<bool> drawn(static_cast<size_t>(layers));
  for (int64_t i = 0; i < share_of(schedule.ratio, layers); ++i) {
    drawn[static_cast<size_t>(order[static_cast<size_t>(i)])] = true;
  }
  return drawn;
}

}  // namespace mft
