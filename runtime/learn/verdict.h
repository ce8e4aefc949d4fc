#pragma once

#include "runtime/learn/version_losses.h"

namespace mft {

/// Held-out rows that a decision needs at least.
constexpr int64_t kFewestRows = 4;

/// Decides whether a version is better than the one before it: the lower end of the one-sided 95 % interval (paired t)
/// of the held-out rows' gain must be above 0, and the perplexity of general text at most 1 + `general_bound` times the
/// base model's.
Verdict decide(const VersionLosses& before, const VersionLosses& after, const VersionLosses& base,
               double general_bound);

/// The 95 % quantile of Student's t with `freedom` degrees of freedom (from 3), within 0.5 %.
double t_quantile(double freedom);

}  // namespace mft
