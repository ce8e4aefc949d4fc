#pragma once

#include "runtime/core/mix.h"

namespace mft {

/// The fastest mix that fits the budget, or the smallest where none does.
Mix fastest_mix(MixCosts& costs);

}  // namespace mft
