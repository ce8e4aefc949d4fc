#pragma once

#include "runtime/plan/activation_policy.h"

namespace mft {

/// The fastest policy that fits the budget, or the smallest where none does.
ActivationPolicy fastest_policy(PolicyCosts& costs);

}  // namespace mft
