#pragma once

#include <vector>

#include "runtime/learn/learner_state.h"
#include "runtime/learn/losses_file.h"

namespace mft {

/// Held-out rows that a decision needs at least: with fewer, chance can be ruled out by no gain.
constexpr int64_t kFewestRows = 5;
/// How likely chance alone may make an adopted version's gain.
constexpr double kMostChance = 0.05;

/// Decides whether a version is better than the one before it: chance alone must make the gain of the held-out rows,
/// per token as in training, in at most 5 % of cases, and the perplexity of general text must be at most 1 +
/// `general_bound` times the base model's.
Verdict decide(const VersionLosses& before, const VersionLosses& after, const VersionLosses& base,
               double general_bound);

/// How likely a mean at least as large is if each of these gains could as well be a loss: the share of all choices of
/// signs with such a mean (Fisher's randomization test), of 20,000 random ones if there are more than that. Unlike a
/// t-test, it bears a few rows that gain much more than the others.
double chance_of(const std::vector<double>& gains);

}  // namespace mft
