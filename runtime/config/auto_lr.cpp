#include "runtime/config/auto_lr.h"

#include <algorithm>
#include <cmath>

namespace mft {
namespace {

constexpr double kRate = 1e-3, kAlpha = 32, kWidth = 576;  // tuned on SmolLM2-135M

/// Rounds to two digits.
double rounded(double number) {
  const double scale = std::pow(10, 1 - std::floor(std::log10(number)));
  return std::round(number * scale) / scale;
}

/// The factor of losses of feedback, which compare answers and need far smaller rates.
double factor_of(Loss loss) {
  switch (loss) {
    case Loss::kSft:
      return 1;
    case Loss::kKto:
      return 0.2;
    default:
      return 0.05;
  }
}

}  // namespace

double base_lr(double alpha, int64_t hidden_size) {
  const double width = std::max(kWidth, static_cast<double>(hidden_size));
  return kRate * std::pow(kAlpha / alpha * kWidth / width, 2.0 / 3);
}

double base_lr(const Bundle& bundle) {
  const double root = bundle.lora_rslora ? std::sqrt(static_cast<double>(bundle.lora_rank)) : 1;
  return bundle.lr_factor * base_lr(bundle.lora_alpha * root, bundle.hidden_size);
}

double auto_lr(const TrainConfig& config, double base) {
  return rounded(base * config.schedule.rule->lr_factor * factor_of(config.loss));
}

}  // namespace mft
