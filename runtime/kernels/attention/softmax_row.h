#pragma once

// The two row operations of an online softmax.

#include <algorithm>
#include <cstdint>
#include <limits>

#include "runtime/platform/vec.h"

namespace mft::MFT_ISA {

// Largest of x[0..n), -inf when n is 0.
inline float max_of(const float* x, int64_t n) {
  float m = -std::numeric_limits<float>::infinity();
  int64_t i = 0;
  if (n >= kVec) {
    Vec high = load(x);
    for (i = kVec; i + kVec <= n; i += kVec) high = vmax(high, load(x + i));
    m = max_lane(high);
  }
  for (; i < n; ++i) m = std::max(m, x[i]);
  return m;
}

// x[i] = e^(x[i] - shift) for i in [0, n); returns the sum.
inline float exp_row(float* x, int64_t n, float shift) {
  Vec total{};
  int64_t i = 0;
  for (; i + kVec <= n; i += kVec) {
    const Vec e = exp(load(x + i) - shift);
    store(x + i, e);
    total += e;
  }
  float result = sum(total);
  if (i < n) {
    store_part(x + i, exp(load_part(x + i, n - i) - shift), n - i);
    for (; i < n; ++i) result += x[i];
  }
  return result;
}

}  // namespace mft::MFT_ISA
