#pragma once

#include <vector>

#include "runtime/train/loss.h"

namespace mft {

/// The losses of pairs of answers c, chosen, and r, rejected, with log-probabilities p, those without adapter p_ref,
/// and n targets. As in TRL, s is sigmoid, e the option label_smoothing and g simpo_gamma:
///   dpo (arXiv 2305.18290)    -(1 - e) ln s(z) - e ln s(-z),  z = beta ((p_c - p_ref_c) - (p_r - p_ref_r))
///   ipo (arXiv 2310.12036)    ((p_c - p_ref_c) / n_c - (p_r - p_ref_r) / n_r - 1 / (2 beta))^2
///   simpo (arXiv 2405.14734)  -(1 - e) ln s(z) - e ln s(-z),  z = beta (p_c / n_c - p_r / n_r) - g
///   orpo (arXiv 2403.07691)   -beta ln s(o_c - o_r),  o = ln(q / (1 - q)),  q = exp(p / n)
/// Each adds the share of cross-entropy of the chosen answers. `rows` are pairs, chosen then rejected; a pair weighs
/// what its chosen row does. Throws Error if a row has no partner.
LossSum pair_loss(std::vector<RowLoss> rows, const Comparison& compared, const TrainConfig& config,
                  const HeadGradient& gradient);

}  // namespace mft
