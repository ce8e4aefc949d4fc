#pragma once

// The two row operations of an online softmax.

#include <algorithm>
#include <cstdint>
#include <limits>

#include "runtime/kernels/elementwise/activations.h"
#include "runtime/platform/vec.h"

namespace mft::MFT_ISA {

// x[i] = cap tanh(x[i] / cap) for i in [0, n).
inline void softcap_row(float* x, int64_t n, float cap) {
  for (int64_t i = 0; i < n; i += kVec) {
    const int64_t count = std::min<int64_t>(kVec, n - i);
    store_part(x + i, cap * tanh(load_part(x + i, count) / cap), count);
  }
}

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

// The same for x after `softcap_row`: the sum is of e^(x[i] - shift), and x[i] becomes e^(x[i] - shift) times the slope
// of the limit, 1 - (x[i] / cap)^2.
inline float exp_row_with_slope(float* x, int64_t n, float shift, float cap) {
  float total = 0.f;
  for (int64_t i = 0; i < n; i += kVec) {
    const int64_t count = std::min<int64_t>(kVec, n - i);
    const Vec value = load_part(x + i, count), ratio = value / cap;
    Vec e = exp(value - shift);
    store_part(x + i, e * (1.f - ratio * ratio), count);
    for (int64_t lane = count; lane < kVec; ++lane) e[lane] = 0.f;
    total += sum(e);
  }
  return total;
}

}  // namespace mft::MFT_ISA
