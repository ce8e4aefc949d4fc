#pragma once

#include <cstdint>

namespace mft::MFT_ISA {

// out [T, D] = x [T, D] + bias [D]; out may be x.
void add_bias(const float* x, const float* bias, int64_t t, int64_t d, float* out);

}  // namespace mft::MFT_ISA
