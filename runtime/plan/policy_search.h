#pragma once

#include "runtime/plan/activation_policy.h"

namespace mft {

/// Returns the fastest policy that fits the budget, or the smallest if none does.
ActivationPolicy fastest_policy(PolicyCosts& costs);

}  // namespace mft
