#pragma once

#include <cstdint>
#include <string>

namespace mft {

/// big_cores() of platform/cpu.h, from what Linux says of the cores in this folder.
int64_t big_cores_in(const std::string& folder);

}  // namespace mft
