#pragma once

#include "runtime/platform/vec.h"

namespace mft::MFT_ISA {

struct Activation {
  Vec value, slope;
};

inline Vec sigmoid(Vec x) { return 1.f / (1.f + exp(-x)); }

inline Vec tanh(Vec x) { return 1.f - 2.f / (1.f + exp(2.f * x)); }

inline Activation silu(Vec x) {
  // At -100 silu is -4e-42; beyond, a huge x would outweigh a sigmoid that cannot get smaller. Keeps NaN.
  const Vec floored = x < splat(-100.f) ? splat(-100.f) : x;
  const Vec s = sigmoid(floored);
  return {floored * s, s * (1.f + floored * (1.f - s))};
}

// gelu(x) = x / 2 * (1 + tanh(t / 2)) = x * sigmoid(t), t = 2 sqrt(2 / pi) * (x + 0.044715 x^3).
inline Activation gelu_tanh(Vec x) {
  constexpr float kScale = 1.5957691216057308f, kCube = 0.044715f;
  // At -10 gelu is -1e-37 and at 10 it is x; beyond, the arguments would only overflow. Both keep NaN.
  const Vec floored = x < splat(-10.f) ? splat(-10.f) : x;
  const Vec clamped = floored > splat(10.f) ? splat(10.f) : floored;
  const Vec s = sigmoid(kScale * clamped * (1.f + kCube * clamped * clamped));
  const Vec dt = kScale * (1.f + 3.f * kCube * clamped * clamped);
  return {floored * s, s * (1.f + clamped * (1.f - s) * dt)};
}

}  // namespace mft::MFT_ISA
