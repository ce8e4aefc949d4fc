#pragma once

#include <cstdint>

namespace mft::MFT_ISA {

// y = z * weight for rows z [T, d] and weight [d].
void affine(const float* z, const float* weight, int64_t t, int64_t d, float* y);

}  // namespace mft::MFT_ISA
