#pragma once

// A group of weights that share a scale, and what the searches for scales share.

#include <cmath>
#include <cstdint>
#include <limits>

#include "runtime/platform/vec.h"

namespace mft {
using namespace MFT_ISA;

constexpr int64_t kMostGroup = 128;
constexpr int kSearchRounds = 3;  // of choosing codes for a scale and then the scale that fits these codes best

/// x as the nearest float16. Within float16's range.
inline uint16_t half_of(float x) {
  uint16_t halves[kVec];
  store_half(halves, splat(x));
  return halves[0];
}

inline float rounded_to_half(float x) {
  const uint16_t half = half_of(x);
  return half_to_float(reinterpret_cast<const uint8_t*>(&half));
}

inline float inverse_of(float scale) {
  return std::fabs(scale) < std::numeric_limits<float>::min() ? 0.f : 1.f / scale;
}

/// The values of a group, and the weight of the squared error in each.
struct Group {
  const float* x;
  const float* weight;
  int64_t size;

  template <typename F>
  void each(const F& f) const {
    for (int64_t i = 0; i < size; i += kVec) f(load(x + i), load(weight + i));
  }
};

}  // namespace mft
