#pragma once

// Weights that a kernel reads once from front to back, the head's above all, need not stay resident behind it. Whoever
// maps them from a file says where they lie; the kernel says how far it has come.

#include <cstddef>
#include <cstdint>

namespace mft {

// How much a kernel reads before it reports.
constexpr size_t kSweepBytes = size_t{1} << 20;

// The file mapping whose pages may be dropped, null for none; only the runtime's one training thread sets it, between
// kernels.
void set_sweep(const uint8_t* begin, const uint8_t* end);

// The pages wholly inside [begin, end) leave the process if they belong to that mapping; read again, they come back.
void swept(const uint8_t* begin, const uint8_t* end);

}  // namespace mft
