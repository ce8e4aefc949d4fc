#pragma once

#include <cstdint>

namespace mft {

/// The limit of this process's memory in bytes, or 0 if there is none. Linux: the lowest one of its control groups.
/// iOS: the limit of the app's footprint.
uint64_t memory_limit();

}  // namespace mft
