#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/platform/scratch.h"

namespace mft {

struct RopeShape {
  int64_t t;
  int64_t heads;
  int64_t dim;       // of one head
  int64_t half;      // pairs of a head that are rotated, at most dim / 2
  bool inverse;      // rotates by the opposite angles, which is the gradient
  bool interleaved;  // pair i is (2i, 2i + 1), and not (i, i + half)
  float factor;      // of the rotated pairs; YaRN's attention factor (arXiv 2309.00071)
};

namespace MFT_ISA {

// Rotary embedding. x, y [T, heads * dim] (may be the same), positions [T], inv_freq [half]. With angle = position *
// inv_freq[i] (in float32, as in Hugging Face), pair (a, b) of a head becomes:
//   a' = factor (a cos(angle) - b sin(angle))
//   b' = factor (b cos(angle) + a sin(angle))
// The numbers of a head from 2 half on stay as they are.
void rope(const RopeShape& shape, const float* x, const int64_t* positions, const float* inv_freq, float* y,
          Scratch scratch);

size_t rope_scratch_bytes(int64_t half);

}  // namespace MFT_ISA
}  // namespace mft
