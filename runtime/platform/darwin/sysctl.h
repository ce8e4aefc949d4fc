#pragma once

#include <cstdint>
#include <functional>

#include "runtime/platform/cpu.h"

namespace mft {

/// Returns the number that Darwin gives for a name, such as hw.perflevel0.physicalcpu, or 0 if it does not know the
/// name.
using Sysctl = std::function<int64_t(const char* name)>;

/// What platform/cpu.h asks for, from these numbers.
int64_t big_cores_of(const Sysctl& sysctl);
ArmFeatures arm_features_of(const Sysctl& sysctl);

}  // namespace mft
