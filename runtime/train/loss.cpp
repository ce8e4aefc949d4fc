#include "runtime/train/loss.h"

#include <cmath>

#include "runtime/base/error.h"

namespace mft {
namespace {

/// Where rows start, and the end of the last.
std::vector<size_t> row_bounds(const Batch& batch) {
  std::vector<size_t> bounds;
  for (size_t i = 0; i < batch.positions.size(); ++i) {
    if (batch.positions[i] == 0) bounds.push_back(i);
  }
  bounds.push_back(batch.positions.size());
  return bounds;
}

void scale(float* dx, int64_t hidden, size_t begin, size_t end, double factor) {
  if (dx == nullptr) return;
  const size_t width = static_cast<size_t>(hidden);
  for (size_t i = begin * width; i < end * width; ++i) dx[i] = static_cast<float>(dx[i] * factor);
}

double weight_of(const Batch& batch, size_t i) { return batch.weights.empty() ? 1.0 : batch.weights[i]; }

}  // namespace

void LossSum::operator+=(const LossSum& other) {
  loss += other.loss;
  count += other.count;
  margin += other.margin;
  chosen_higher += other.chosen_higher;
}

LossSum cross_entropy(const Batch& batch, const std::vector<float>& losses, float* dx, int64_t hidden) {
  LossSum sum;
  sum.count = batch.target_count;
  for (size_t i = 0; i < losses.size(); ++i) {
    const double weight = weight_of(batch, i);
    sum.loss += weight * losses[i];
    if (weight != 1.0) scale(dx, hidden, i, i + 1, weight);
  }
  return sum;
}

LossSum dpo(const Batch& batch, const std::vector<float>& losses, const std::vector<float>& reference, double beta,
            float* dx, int64_t hidden) {
  const std::vector<size_t> bounds = row_bounds(batch);
  if (bounds.size() % 2 == 0) fail("dpo needs pairs of rows, chosen then rejected");
  // By how much a row is likelier than without the adapter; a loss is minus a log probability.
  const auto gained = [&](size_t row) {
    double sum = 0;
    for (size_t i = bounds[row]; i < bounds[row + 1]; ++i) sum += static_cast<double>(reference[i]) - losses[i];
    return sum;
  };
  LossSum sum;
  for (size_t row = 0; row + 2 < bounds.size(); row += 2) {
    const double z = beta * (gained(row) - gained(row + 1));
    const double weight = weight_of(batch, bounds[row]);
    // ln(1 + e^-z) without overflow; its derivative by z is -sigmoid(-z).
    sum.loss += weight * (std::log1p(std::exp(-std::abs(z))) + std::fmax(-z, 0.0));
    sum.margin += z;
    sum.chosen_higher += z > 0;
    ++sum.count;
    const double slope = weight * beta / (1.0 + std::exp(z));
    scale(dx, hidden, bounds[row], bounds[row + 1], slope);
    scale(dx, hidden, bounds[row + 1], bounds[row + 2], -slope);
  }
  return sum;
}

}  // namespace mft
