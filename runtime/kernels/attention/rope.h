#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/platform/scratch.h"

namespace mft::MFT_ISA {

// Rotary embedding in Hugging Face's half-split order. x, y [T, heads * dim] (may be the same),
// positions [T], inv_freq [dim / 2]. With angle = position * inv_freq[i] (in float32, as HF has
// it):
//   y[i]           = x[i] cos(angle) - x[i + dim/2] sin(angle)
//   y[i + dim / 2] = x[i + dim/2] cos(angle) + x[i] sin(angle)
// inverse rotates by -angle, which is the gradient.
void rope(const float* x, const int64_t* positions, const float* inv_freq, int64_t t, int64_t heads, int64_t dim,
          bool inverse, float* y, Scratch scratch);

size_t rope_scratch_bytes(int64_t dim);

}  // namespace mft::MFT_ISA
