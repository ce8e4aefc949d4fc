#pragma once

#include "runtime/platform/vec.h"

namespace mft::MFT_ISA {

// Sums over one row of d floats, always in the same order.
inline float row_dot(const float* x, const float* y, int64_t d) {
  Vec sums{};
  int64_t k = 0;
  for (; k + kVec <= d; k += kVec) sums += load(x + k) * load(y + k);
  float total = sum(sums);
  for (; k < d; ++k) total += x[k] * y[k];
  return total;
}

}  // namespace mft::MFT_ISA
