#pragma once

#include <cstdint>

namespace mft::MFT_ISA {

// out[i] = a[i] + b[i], i in [0, n); out may be a or b.
void add(const float* a, const float* b, int64_t n, float* out);

}  // namespace mft::MFT_ISA
