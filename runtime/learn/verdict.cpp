#include "runtime/learn/verdict.h"

#include <cmath>
#include <cstdio>

#include "runtime/base/random.h"

namespace mft {
namespace {

constexpr size_t kMostEnumerated = 14;  // rows, of which all choices of signs are tried
constexpr uint64_t kChoices = 20000;
constexpr const char* kGoesOn = "; the next night goes on from here";  // of an undecided one

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

double chance_of(const std::vector<double>& gains) {
  double sum = 0, size = 0;
  for (const double gain : gains) {
    sum += gain;
    size += std::abs(gain);
  }
  const double least = sum - 1e-12 * size;  // so that the signs as they are count, however they are added up
  const size_t n = gains.size();
  const bool all = n <= kMostEnumerated;
  const uint64_t choices = all ? uint64_t{1} << n : kChoices;
  Random random(0, 0);
  uint64_t reached = 0;
  for (uint64_t choice = 0; choice < choices; ++choice) {
    double other = 0;
    uint64_t signs = choice;
    for (size_t i = 0; i < n; ++i) {
      if (!all && i % 64 == 0) signs = random.next();
      other += (signs >> i % 64 & 1) != 0 ? -gains[i] : gains[i];
    }
    reached += other >= least;
  }
  // The signs as they are count as one of the random choices.
  return all ? static_cast<double>(reached) / static_cast<double>(choices)
             : static_cast<double>(reached + 1) / static_cast<double>(choices + 1);
}

Verdict decide(const VersionLosses& before, const VersionLosses& after, const VersionLosses& base,
               double general_bound) {
  Verdict verdict;
  std::vector<double> gains;
  int64_t count = 0;
  for (const auto& [id, loss] : after.rows) {
    const auto earlier = before.rows.find(id);
    if (earlier == before.rows.end()) continue;
    gains.push_back(earlier->second.sum - loss.sum);
    verdict.gain += gains.back();
    verdict.loss += loss.sum;
    count += loss.count;
  }
  verdict.rows = static_cast<int64_t>(gains.size());
  verdict.general = std::exp(after.general - base.general);
  if (!std::isfinite(verdict.general + verdict.gain + verdict.loss)) {
    verdict = Verdict();
    verdict.why = "the loss is not finite; lower lr";
    return verdict;
  }
  if (verdict.rows < kFewestRows) {
    verdict.undecided = true;
    verdict.gain = verdict.loss = 0;
    verdict.why = "there are " + std::to_string(verdict.rows) + " held-out rows; a decision needs " +
                  std::to_string(kFewestRows) + kGoesOn;
    return verdict;
  }
  verdict.gain /= static_cast<double>(count);
  verdict.loss /= static_cast<double>(count);
  verdict.chance = chance_of(gains);
  const bool rose = !(verdict.gain > 0);
  double chance = verdict.chance;
  if (rose) {
    for (double& gain : gains) gain = -gain;
    chance = chance_of(gains);
  }
  verdict.undecided = chance > kMostChance;
  const std::string gain =
      number(std::abs(verdict.gain)) + ", which chance alone makes in " + percent(chance) + " of cases";
  if (rose || verdict.undecided) {
    verdict.why = "the loss of held-out rows " + std::string(rose ? "rose by " : "fell by ") + gain +
                  (verdict.undecided ? kGoesOn : "");
  } else if (!(verdict.general <= 1 + general_bound)) {
    verdict.why = "the perplexity of general text rose by " + percent(verdict.general - 1) +
                  " over the base model's; the limit is " + percent(general_bound);
  } else {
    verdict.adopted = true;
    verdict.why = "the loss of held-out rows fell by " + gain;
  }
  return verdict;
}

}  // namespace mft
