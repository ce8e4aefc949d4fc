#pragma once

#include <cstdint>
#include <string>

namespace mft {

/// How many cores are at least half as fast as the fastest one, as Linux says in `folder`: on phones all but the little
/// ones, which would have the others wait. 0 where it does not say.
int64_t big_cores(const std::string& folder = "/sys/devices/system/cpu");

}  // namespace mft
