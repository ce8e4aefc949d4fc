#include "runtime/learn/verdict.h"

#include <cmath>
#include <cstdio>
#include <vector>

namespace mft {
namespace {

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %%", 100 * share);
  return text;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4f", value);
  return text;
}

}  // namespace

double t_quantile(double freedom) {
  // Cornish and Fisher's expansion from the normal distribution's quantile.
  const double z = 1.6448536269514722, z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z, n = freedom;
  return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * n * n * n);
}

Verdict decide(const VersionLosses& before, const VersionLosses& after, const VersionLosses& base,
               double general_bound) {
  Verdict verdict;
  std::vector<double> gains;
  for (const auto& [id, loss] : after.rows) {
    const auto earlier = before.rows.find(id);
    if (earlier == before.rows.end()) continue;
    gains.push_back(earlier->second - loss);
    verdict.gain += gains.back();
    verdict.loss += loss;
  }
  verdict.rows = static_cast<int64_t>(gains.size());
  verdict.general = std::exp(after.general - base.general);
  if (verdict.rows < kFewestRows) {
    verdict.gain = verdict.loss = 0;
    verdict.why =
        "there are " + std::to_string(verdict.rows) + " held-out rows; a decision needs " + std::to_string(kFewestRows);
    return verdict;
  }
  const double n = static_cast<double>(gains.size());
  verdict.gain /= n;
  verdict.loss /= n;
  double squares = 0;
  for (const double gain : gains) squares += (gain - verdict.gain) * (gain - verdict.gain);
  verdict.lower = verdict.gain - t_quantile(n - 1) * std::sqrt(squares / (n - 1) / n);
  if (!(verdict.lower > 0)) {
    verdict.why = "the loss of held-out rows did not fall by more than chance explains (" + number(verdict.gain) +
                  " on average, at least " + number(verdict.lower) + " with 95 % confidence)";
  } else if (!(verdict.general <= 1 + general_bound)) {
    verdict.why = "the perplexity of general text rose by " + percent(verdict.general - 1) +
                  " over the base model's; the limit is " + percent(general_bound);
  } else {
    verdict.adopted = true;
    verdict.why = "the loss of held-out rows fell by " + number(verdict.gain) + " on average, at least " +
                  number(verdict.lower) + " with 95 % confidence";
  }
  return verdict;
}

}  // namespace mft
