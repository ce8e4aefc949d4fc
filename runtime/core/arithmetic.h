#pragma once

#include <string>

#include "runtime/core/train_config.h"
#include "runtime/dispatch/kernels.h"

namespace mft {

/// What the kernels compute with. A run that is resumed or repeated with another one differs in the last bits.
inline std::string arithmetic(Compute compute) { return std::string(name_of(compute)) + "-" + kernels().isa; }

}  // namespace mft
