#pragma once

#include <vector>

#include "runtime/train/loss.h"

namespace mft {

/// KTO (arXiv 2402.01306) of single answers that are liked or not, as in TRL: with r the log-probability of an answer
/// less that without adapter, 1 - sigmoid(beta (r - kl)) of a liked one, 1 - sigmoid(beta (kl - r)) of another. `kl`
/// has no gradient. Adds the share of cross-entropy of the liked answers.
LossSum kto(const std::vector<RowLoss>& rows, const Comparison& compared, const TrainConfig& config,
            const HeadGradient& gradient);

}  // namespace mft
