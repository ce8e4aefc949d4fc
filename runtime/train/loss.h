#pragma once

#include <cstdint>
#include <vector>

#include "runtime/bundle/token_file.h"
#include "runtime/config/train_config.h"

namespace mft {

/// The loss of a micro-batch or of several: sums, which `count` makes means of.
struct LossSum {
  double loss = 0;
  int64_t count = 0;          // targets, or pairs
  double margin = 0;          // of dpo: how much higher the chosen answers' reward is
  int64_t chosen_higher = 0;  // of dpo: pairs in which it is higher

  void operator+=(const LossSum& other);
};

/// Weighted cross-entropy: the sum of weight x loss over the targets. `losses` [t] and `dx` [t, hidden], the gradient
/// of each token's loss, are the head's; dx becomes the gradient of the sum, and may be null.
LossSum cross_entropy(const Batch& batch, const std::vector<float>& losses, float* dx, int64_t hidden);

/// DPO (arXiv 2305.18290) over the batch's pairs of rows, chosen then rejected:
/// -ln sigmoid(z), z = beta ((log p(chosen) - log p_ref(chosen)) - (log p(rejected) - log p_ref(rejected))).
/// `reference` [t] holds the losses of the model without adapter. A pair weighs what its chosen row's first place does.
LossSum dpo(const Batch& batch, const std::vector<float>& losses, const std::vector<float>& reference, double beta,
            float* dx, int64_t hidden);

}  // namespace mft
