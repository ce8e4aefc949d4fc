#include "runtime/train/kto.h"

#include <cmath>

namespace mft {

LossSum kto(const std::vector<RowLoss>& rows, const Comparison& compared, const TrainConfig& config,
            const HeadGradient& gradient) {
  LossSum sum;
  std::vector<double> slopes;
  for (size_t row = 0; row < rows.size(); ++row) {
    const double gained = compared.reference[row] - rows[row].loss;
    const double sign = rows[row].liked ? 1 : -1;
    const double unlike = 1 / (1 + std::exp(sign * config.beta * (gained - compared.kl)));
    sum.loss += rows[row].weight * unlike;
    // d unlike / d gained = -sign beta unlike (1 - unlike), and gained falls with the row's loss.
    slopes.push_back(rows[row].weight * sign * config.beta * unlike * (1 - unlike));
    (rows[row].liked ? sum.chosen_reward : sum.rejected_reward) += config.beta * gained;
    ++(rows[row].liked ? sum.chosen : sum.rejected);
    ++sum.count;
  }
  sum.kl = compared.kl * static_cast<double>(sum.count);
  add_sft_share(rows, std::move(slopes), config.sft_share(), sum, gradient);
  return sum;
}

}  // namespace mft
