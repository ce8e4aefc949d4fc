#pragma once

#include <cstdint>
#include <string>

namespace mft {

/// The CPU's name as the system gives it, or "CPU".
std::string cpu_name();

/// How many cores this process may use.
int64_t usable_cpus();

/// How many cores threads are for: on phones all but the little ones, which would have the others wait. Linux: those
/// that are at least half as fast as the fastest one. Darwin: those of the highest performance level. 0: the system
/// does not say.
int64_t big_cores();

/// Instructions that an ARM CPU may lack.
struct ArmFeatures {
  bool dotprod = false, i8mm = false, sha2 = false;
};
ArmFeatures arm_features();

/// Whether the system lets this process use the tiles of x86's AMX, after it was asked to.
bool may_use_tiles();

}  // namespace mft
