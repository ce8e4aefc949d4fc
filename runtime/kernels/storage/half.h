#pragma once

#include <cstdint>

namespace mft::MFT_ISA {

// Rounds n floats to f16; what f16 cannot hold becomes its largest value, +-65504.
void to_half(const float* x, int64_t n, uint16_t* out);
void from_half(const uint16_t* x, int64_t n, float* out);

}  // namespace mft::MFT_ISA
