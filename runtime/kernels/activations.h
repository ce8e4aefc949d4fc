#pragma once

#include "runtime/kernels/vec.h"

namespace mft {

inline Vec sigmoid(Vec x) { return 1.f / (1.f + exp(-x)); }

inline Vec silu(Vec x) { return x * sigmoid(x); }

// gelu(x) = x / 2 * (1 + tanh(t)) = x * sigmoid(2 t), t = sqrt(2 / pi) * (x + 0.044715 x^3).
constexpr float kGeluScale = 1.5957691216057308f;  // 2 sqrt(2 / pi)
constexpr float kGeluCube = 0.044715f;

// At -10 gelu is -1e-37 and at 10 it is x; beyond, the arguments would only overflow. Both keep NaN.
inline Vec gelu_floor(Vec x) { return x < splat(-10.f) ? splat(-10.f) : x; }
inline Vec gelu_clamp(Vec x) {
  x = gelu_floor(x);
  return x > splat(10.f) ? splat(10.f) : x;
}

inline Vec gelu_sigmoid(Vec clamped) { return sigmoid(kGeluScale * clamped * (1.f + kGeluCube * clamped * clamped)); }

inline Vec gelu_tanh(Vec x) { return gelu_floor(x) * gelu_sigmoid(gelu_clamp(x)); }

}  // namespace mft
