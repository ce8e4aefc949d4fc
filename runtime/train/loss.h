#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/bundle/token_file.h"
#include "runtime/config/train_config.h"

namespace mft {

/// The loss of a micro-batch or of several: sums, which `count` makes means of.
struct LossSum {
  double loss = 0;
  int64_t count = 0;  // targets of sft, pairs of answers, or rows of kto
  // Of losses of feedback: implicit rewards, in units of beta.
  double chosen_reward = 0, rejected_reward = 0;
  int64_t chosen = 0, rejected = 0;  // answers
  int64_t chosen_higher = 0;         // pairs in which the chosen answer has the higher reward
  double kl = 0;                     // of kto: its estimate, times rows

  void operator+=(const LossSum& other);
};

/// What the rows of a batch are compared with (train/comparison.h). Empty if the loss compares with nothing.
struct Comparison {
  std::vector<double> reference;  // of each row: the sum of its losses without the adapter
  double kl = 0;                  // kto's estimate
};

/// A row of a batch: its positions [begin, end), and sums over them.
struct RowLoss {
  size_t begin, end;
  double loss;      // sum over the targets: minus the answer's log-probability
  int64_t targets;  // at least 1, so that it can be divided by
  double weight;
  bool liked;
};

/// The rows of a batch whose tokens have the losses `losses` [t].
std::vector<RowLoss> rows_of(const Batch& batch, const std::vector<float>& losses);

/// The gradient of each token's loss, dx [t, hidden], which losses turn into their own gradient. May be null.
struct HeadGradient {
  float* dx;
  int64_t hidden;

  /// Multiplies the gradients of the positions [begin, end).
  void scale(size_t begin, size_t end, double factor) const;
};

/// The loss of a batch as configured. `losses` [t] and `gradient` are the head's; the gradient becomes that of the sum.
LossSum loss_of(const Batch& batch, const std::vector<float>& losses, const Comparison& compared,
                const TrainConfig& config, const HeadGradient& gradient);

/// Weighted cross-entropy: the sum of weight x loss over the targets.
LossSum cross_entropy(const Batch& batch, const std::vector<float>& losses, const HeadGradient& gradient);

/// Adds the cross-entropy of the chosen answers to a loss of feedback, as TRL's loss "sft": `share` times their mean
/// over the batch's tokens counts as much as the mean loss of pairs or rows. `slopes` are the derivatives of the sum by
/// each row's loss, which this scales the gradient by.
void add_sft_share(const std::vector<RowLoss>& rows, std::vector<double> slopes, double share, LossSum& sum,
                   const HeadGradient& gradient);

}  // namespace mft
