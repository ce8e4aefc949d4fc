#include "runtime/generate/lookahead.h"

#include <algorithm>

namespace mft {
namespace {

constexpr size_t kSame = 3;          // tokens that must be the same
constexpr double kNewest = 0.15;     // weight of the newest value in running means
constexpr double kLeastGain = 1.15;  // less may be none: guesses become worse, and costs are estimates

void follow(double& mean, double value) { mean += kNewest * (value - mean); }

}  // namespace

void Lookahead::add(int64_t token) {
  // Guesses that were not computed count, too: they may be right again one day.
  if (next_ != 0) {
    const bool right = text_[next_] == token;
    follow(right_, right ? 1 : 0);
    next_ = right ? next_ + 1 : 0;
  }
  text_.push_back(token);
}

/// Finds the latest place where the last kSame tokens were before.
void Lookahead::look_up() {
  next_ = 0;
  if (text_.size() <= kSame) return;
  const auto end = text_.end() - kSame;
  for (auto at = end - 1;; --at) {
    if (std::equal(end, text_.end(), at)) {
      next_ = static_cast<size_t>(at - text_.begin()) + kSame;
      return;
    }
    if (at == text_.begin()) return;
  }
}

std::vector<int64_t> Lookahead::guesses(size_t most) {
  if (next_ == 0) look_up();
  if (next_ == 0) return {};
  size_t best = 0;
  double best_gain = kLeastGain, tokens = 1, chance = 1;
  for (size_t count = 1; count <= std::min(most, text_.size() - next_); ++count) {
    tokens += chance *= right_;
    const double gain = tokens / (1 + more_cost_ * static_cast<double>(count));
    if (gain > best_gain) best = count, best_gain = gain;
  }
  const auto from = text_.begin() + static_cast<ptrdiff_t>(next_);
  return {from, from + static_cast<ptrdiff_t>(best)};
}

void Lookahead::took(size_t tokens, double seconds) {
  if (tokens == 1) {
    alone_ = alone_ == 0 ? seconds : alone_ + kNewest * (seconds - alone_);
  } else if (alone_ > 0) {
    follow(more_cost_, std::max(0.0, seconds / alone_ - 1) / static_cast<double>(tokens - 1));
  }
}

}  // namespace mft
