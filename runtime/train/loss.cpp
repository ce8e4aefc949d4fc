#include "runtime/train/loss.h"

#include <algorithm>

#include "runtime/train/kto.h"
#include "runtime/train/pair_losses.h"

namespace mft {
namespace {

double weight_of(const Batch& batch, size_t i) { return batch.weights.empty() ? 1.0 : batch.weights[i]; }

}  // namespace

void LossSum::operator+=(const LossSum& other) {
  loss += other.loss;
  count += other.count;
  chosen_reward += other.chosen_reward;
  rejected_reward += other.rejected_reward;
  chosen += other.chosen;
  rejected += other.rejected;
  chosen_higher += other.chosen_higher;
  kl += other.kl;
}

std::vector<RowLoss> rows_of(const Batch& batch, const std::vector<float>& losses) {
  std::vector<RowLoss> rows;
  for (size_t i = 0; i < batch.positions.size(); ++i) {
    if (batch.positions[i] == 0) {
      rows.push_back({i, i, 0, 0, weight_of(batch, i), batch.liked.empty() || batch.liked[i] != 0});
    }
    RowLoss& row = rows.back();
    row.end = i + 1;
    row.loss += losses[i];
    row.targets += batch.targets[i] >= 0;
  }
  for (RowLoss& row : rows) row.targets = std::max<int64_t>(1, row.targets);
  return rows;
}

void HeadGradient::scale(size_t begin, size_t end, double factor) const {
  if (dx == nullptr || factor == 1) return;
  const size_t width = static_cast<size_t>(hidden);
  for (size_t i = begin * width; i < end * width; ++i) dx[i] = static_cast<float>(dx[i] * factor);
}

LossSum loss_of(const Batch& batch, const std::vector<float>& losses, const Comparison& compared,
                const TrainConfig& config, const HeadGradient& gradient) {
  if (config.loss == Loss::kSft) return cross_entropy(batch, losses, gradient);
  const std::vector<RowLoss> rows = rows_of(batch, losses);
  return config.loss == Loss::kKto ? kto(rows, compared, config, gradient)
                                   : pair_loss(rows, compared, config, gradient);
}

LossSum cross_entropy(const Batch& batch, const std::vector<float>& losses, const HeadGradient& gradient) {
  LossSum sum;
  sum.count = batch.target_count;
  for (size_t i = 0; i < losses.size(); ++i) {
    const double weight = weight_of(batch, i);
    sum.loss += weight * losses[i];
    gradient.scale(i, i + 1, weight);
  }
  return sum;
}

void add_sft_share(const std::vector<RowLoss>& rows, std::vector<double> slopes, double share, LossSum& sum,
                   const HeadGradient& gradient) {
  int64_t tokens = 0;
  for (const RowLoss& row : rows) tokens += row.liked ? row.targets : 0;
  const double factor = tokens == 0 ? 0 : share * static_cast<double>(sum.count) / static_cast<double>(tokens);
  for (size_t i = 0; i < rows.size(); ++i) {
    const double slope = rows[i].liked ? factor * rows[i].weight : 0;
    sum.loss += slope * rows[i].loss;
    gradient.scale(rows[i].begin, rows[i].end, slopes[i] + slope);
  }
}

}  // namespace mft
