#pragma once

#include <cstdint>

namespace mft {

/// The tightest memory limit of this process's control groups (v1 or v2) in bytes, 0 where there is none.
uint64_t memory_limit();

}  // namespace mft
