#include "runtime/train/pair_losses.h"

#include <cmath>

#include "runtime/base/error.h"

namespace mft {
namespace {

/// The largest mean log-probability that has odds; a probability of 1 has none.
constexpr double kLeastDoubt = -1e-9;

/// A loss, and its derivatives by the scores of the two answers.
struct Value {
  double loss, by_chosen, by_rejected;
};

double sigmoid(double z) { return 1 / (1 + std::exp(-z)); }
/// ln(1 + e^z) without overflow.
double softplus(double z) { return std::log1p(std::exp(-std::abs(z))) + std::fmax(z, 0.0); }

/// -(1 - e) ln sigmoid(z) - e ln sigmoid(-z), z = slope x (chosen - rejected) - shift.
Value logistic(double chosen, double rejected, double slope, double shift, double smoothing) {
  const double z = slope * (chosen - rejected) - shift;
  const double by_z = smoothing * sigmoid(z) - (1 - smoothing) * sigmoid(-z);
  return {(1 - smoothing) * softplus(-z) + smoothing * softplus(z), slope * by_z, -slope * by_z};
}

Value odds_ratio(double chosen, double rejected, double beta) {
  const auto odds = [](double p) { return p - std::log(-std::expm1(p)); };
  const auto slope = [](double p) { return -1 / std::expm1(p); };
  chosen = std::fmin(chosen, kLeastDoubt);
  rejected = std::fmin(rejected, kLeastDoubt);
  const double z = odds(chosen) - odds(rejected);
  const double by_z = -beta * sigmoid(-z);
  return {beta * softplus(-z), by_z * slope(chosen), -by_z * slope(rejected)};
}

Value value_of(double chosen, double rejected, const TrainConfig& config) {
  switch (config.loss) {
    case Loss::kIpo: {
      const double error = chosen - rejected - 1 / (2 * config.beta);
      return {error * error, 2 * error, -2 * error};
    }
    case Loss::kSimpo:
      return logistic(chosen, rejected, config.beta, config.simpo_gamma, config.label_smoothing);
    case Loss::kOrpo:
      return odds_ratio(chosen, rejected, config.beta);
    default:
      return logistic(chosen, rejected, config.beta, 0, config.label_smoothing);
  }
}

}  // namespace

LossSum pair_loss(std::vector<RowLoss> rows, const Comparison& compared, const TrainConfig& config,
                  const HeadGradient& gradient) {
  if (rows.size() % 2 != 0) fail("loss ", name_of(config.loss), " needs pairs of rows, chosen then rejected");
  const bool compares = needs_reference(config.loss), averages = config.loss != Loss::kDpo;
  // How likely an answer is, or how much likelier than without the adapter.
  const auto likelihood = [&](size_t row) { return (compares ? compared.reference[row] : 0) - rows[row].loss; };
  const auto divisor = [&](size_t row) { return averages ? static_cast<double>(rows[row].targets) : 1; };
  LossSum sum;
  std::vector<double> slopes(rows.size());
  for (size_t row = 0; row < rows.size(); row += 2) {
    rows[row].liked = true;
    rows[row + 1].liked = false;
    const double chosen = likelihood(row) / divisor(row), rejected = likelihood(row + 1) / divisor(row + 1);
    const double weight = rows[row].weight;
    const Value value = value_of(chosen, rejected, config);
    sum.loss += weight * value.loss;
    // A loss is minus a log-probability.
    slopes[row] = -weight * value.by_chosen / divisor(row);
    slopes[row + 1] = -weight * value.by_rejected / divisor(row + 1);
    const double rewards[] = {config.beta * (compares ? likelihood(row) : chosen),
                              config.beta * (compares ? likelihood(row + 1) : rejected)};
    sum.chosen_reward += rewards[0];
    sum.rejected_reward += rewards[1];
    sum.chosen_higher += rewards[0] > rewards[1];
    ++sum.count;
  }
  sum.chosen = sum.rejected = sum.count;
  add_sft_share(rows, std::move(slopes), config.sft_share(), sum, gradient);
  return sum;
}

}  // namespace mft
