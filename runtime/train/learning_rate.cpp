#include "runtime/train/learning_rate.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"

namespace mft {
namespace {

constexpr double kPi = 3.14159265358979323846;

}  // namespace

double learning_rate(const TrainConfig& config, int64_t step) {
  const int64_t warmup = config.warmup_steps.value();
  const double peak = config.lr.value.value();
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  const double rest = static_cast<double>(std::max<int64_t>(1, config.steps - warmup));
  const double done = static_cast<double>(step - warmup) / rest;
  switch (config.lr_scheduler) {
    case LrScheduler::kCosine:
      return peak * 0.5 * (1.0 + std::cos(kPi * done));
    case LrScheduler::kLinear:
      return peak * (1.0 - done);
    case LrScheduler::kConstant:
      return peak;
  }
  fail("lr_scheduler ", static_cast<int>(config.lr_scheduler), " is not known");
}

}  // namespace mft
