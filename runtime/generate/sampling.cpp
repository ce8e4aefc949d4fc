#include "runtime/generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "runtime/base/error.h"

namespace mft {
namespace {

/// CTRL's penalty (arXiv 1909.05858): divides positive logits of recent tokens, and multiplies negative ones.
void penalise(std::vector<float>& logits, const std::vector<int64_t>& recent, const GenerateConfig& config) {
  const size_t count = std::min(recent.size(), static_cast<size_t>(config.repetition_context_size));
  for (const int64_t token : std::set<int64_t>(recent.end() - static_cast<ptrdiff_t>(count), recent.end())) {
    float& logit = logits[static_cast<size_t>(token)];
    const float penalty = static_cast<float>(config.repetition_penalty);
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
}

/// Returns the number of tokens that top-p and min-p keep, at least one. The probabilities are in descending order.
size_t kept(const std::vector<double>& probabilities, const GenerateConfig& config) {
  double sum = 0;
  size_t count = 0;
  for (; count < probabilities.size() && sum < config.top_p; ++count) {
    if (count > 0 && probabilities[count] < config.min_p * probabilities[0]) break;
    sum += probabilities[count];
  }
  return count;
}

}  // namespace

int64_t sample(std::vector<float>& logits, const std::vector<int64_t>& recent, const GenerateConfig& config,
               Random& random) {
  if (config.repetition_penalty != 1) penalise(logits, recent, config);
  const bool numbers = std::none_of(logits.begin(), logits.end(), [](float logit) { return std::isnan(logit); });
  const auto best = std::max_element(logits.begin(), logits.end());
  if (!numbers || !std::isfinite(*best))
    fail("the model's output is not finite; the values of the adapter are too large");
  if (config.temp == 0) return best - logits.begin();

  std::vector<int64_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto likelier = [&](int64_t a, int64_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  if (config.top_k > 0 && static_cast<size_t>(config.top_k) < tokens.size()) {
    std::partial_sort(tokens.begin(), tokens.begin() + config.top_k, tokens.end(), likelier);
    tokens.resize(static_cast<size_t>(config.top_k));
  } else if (config.top_p < 1 || config.min_p > 0) {
    std::sort(tokens.begin(), tokens.end(), likelier);
  }
  std::vector<double> probabilities;
  const double top = *best;
  for (const int64_t token : tokens) {
    probabilities.push_back(std::exp((logits[static_cast<size_t>(token)] - top) / config.temp));
  }
  const double whole = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  for (double& p : probabilities) p /= whole;
  if (config.top_p < 1 || config.min_p > 0) probabilities.resize(kept(probabilities, config));

  double left = random.uniform() * std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  for (size_t i = 0; i < probabilities.size(); ++i) {
    left -= probabilities[i];
    if (left <= 0) return tokens[i];
  }
  return tokens[probabilities.size() - 1];
}

}  // namespace mft
