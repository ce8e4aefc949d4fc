#include "runtime/generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "runtime/base/error.h"

namespace mft {
namespace {

constexpr size_t kFirstSorted = 256;

/// CTRL's penalty (arXiv 1909.05858): divides positive logits of recent tokens, and multiplies negative ones.
void penalise(float* logits, const std::vector<int64_t>& recent, const GenerateConfig& config) {
  const size_t count = std::min(recent.size(), static_cast<size_t>(config.repetition_context_size));
  for (const int64_t token : std::set<int64_t>(recent.end() - static_cast<ptrdiff_t>(count), recent.end())) {
    float& logit = logits[token];
    const float penalty = static_cast<float>(config.repetition_penalty);
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
}

/// Returns how many of the first `count` weights, which are in descending order, top-p and min-p keep, at least one.
size_t kept(const std::vector<double>& weights, size_t count, double whole, const GenerateConfig& config) {
  double sum = 0;
  size_t i = 0;
  for (; i < count && sum < config.top_p; ++i) {
    if (i > 0 && weights[i] < config.min_p * weights[0]) break;
    sum += weights[i] / whole;
  }
  return i;
}

/// The tokens that top-k, top-p and min-p keep, in descending order of their probabilities, and these relative to that
/// of the first one.
template <typename Weight>
std::pair<std::vector<int64_t>, std::vector<double>> likeliest(const float* logits, size_t n,
                                                               const GenerateConfig& config, const Weight& weight) {
  const size_t limit = config.top_k > 0 ? std::min(n, static_cast<size_t>(config.top_k)) : n;
  std::vector<int64_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto likelier = [&](int64_t a, int64_t b) {
    const float x = logits[a], y = logits[b];
    return x != y ? x > y : a < b;
  };
  const auto sort = [&](size_t begin, size_t end) {
    const auto at = [&](size_t i) { return tokens.begin() + static_cast<ptrdiff_t>(i); };
    std::partial_sort(at(begin), at(end), tokens.end(), likelier);
  };
  // top-p needs the sum of all probabilities, but few of them in order.
  size_t sorted = config.top_k > 0 ? limit : std::min(limit, kFirstSorted);
  sort(0, sorted);
  if (config.top_k > 0) tokens.resize(limit);
  std::vector<double> weights(tokens.size());
  std::transform(tokens.begin(), tokens.end(), weights.begin(), weight);
  const double whole = std::accumulate(weights.begin(), weights.end(), 0.0);
  size_t count = kept(weights, sorted, whole, config);
  while (count == sorted && sorted < tokens.size()) {
    const size_t begin = sorted;
    sorted = std::min(tokens.size(), 4 * sorted);
    sort(begin, sorted);
    std::transform(tokens.begin() + static_cast<ptrdiff_t>(begin), tokens.end(),
                   weights.begin() + static_cast<ptrdiff_t>(begin), weight);
    count = kept(weights, sorted, whole, config);
  }
  tokens.resize(count);
  weights.resize(count);
  return {std::move(tokens), std::move(weights)};
}

/// The first of n places at which the sum of weights reaches `left`; the last one of weight if none does.
template <typename Weight>
int64_t draw(int64_t n, double left, const Weight& weight) {
  int64_t last = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double w = weight(i);
    if (w > 0) last = i;
    left -= w;
    if (left <= 0) return last;
  }
  return last;
}

}  // namespace

int64_t sample(float* logits, size_t n, const std::vector<int64_t>& recent, const GenerateConfig& config,
               Random& random) {
  if (config.repetition_penalty != 1) penalise(logits, recent, config);
  const bool numbers = std::none_of(logits, logits + n, [](float logit) { return std::isnan(logit); });
  const auto best = std::max_element(logits, logits + n);
  if (!numbers || !std::isfinite(*best))
    fail("the model's output is not finite; the values of the adapter are too large");
  if (config.temp == 0) return best - logits;

  const float top = *best, temp = static_cast<float>(config.temp);
  const auto weight = [&](int64_t token) { return static_cast<double>(std::exp((logits[token] - top) / temp)); };
  if (config.top_k == 0 && config.top_p == 1 && config.min_p == 0) {
    double whole = 0;
    for (size_t i = 0; i < n; ++i) whole += weight(static_cast<int64_t>(i));
    return draw(static_cast<int64_t>(n), random.uniform() * whole, weight);
  }
  const auto kept_tokens = likeliest(logits, n, config, weight);
  const std::vector<double>& weights = kept_tokens.second;
  const double whole = std::accumulate(weights.begin(), weights.end(), 0.0);
  const int64_t place = draw(static_cast<int64_t>(weights.size()), random.uniform() * whole,
                             [&](int64_t i) { return weights[static_cast<size_t>(i)]; });
  return kept_tokens.first[static_cast<size_t>(place)];
}

}  // namespace mft
