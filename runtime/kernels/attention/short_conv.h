#pragma once

#include <cstdint>

namespace mft {

// Gated short convolution of channels by themselves, over rows packed into one sequence. bcx [T, 3 d] = (b, c, x), taps
// [n, d], the oldest token's first, y [T, d]; with u = b * x:
//   y[t] = c[t] * sum of taps[n - 1 - j] * u[t - j] over j < n, j <= positions[t]
struct ShortConvShape {
  int64_t t, d, taps;
};

namespace MFT_ISA {

void short_conv(const ShortConvShape& s, const float* bcx, const float* taps, const int64_t* positions, float* y);

// dbcx [T, 3 d] of dy [T, d].
void short_conv_backward(const ShortConvShape& s, const float* dy, const float* bcx, const float* taps,
                         const int64_t* positions, float* dbcx);

// Goes on where `state` [n - 1, d] holds u of the tokens before; `next` [n - 1, d], which is not `state`, is that of
// the tokens behind these.
void short_conv_decode(const ShortConvShape& s, const float* bcx, const float* taps, const float* state,
                       const int64_t* positions, float* y, float* next);

}  // namespace MFT_ISA
}  // namespace mft
