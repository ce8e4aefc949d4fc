#pragma once

#include <cstdint>

namespace mft {

// out[i] = silu(gate[i]) * up[i], silu(g) = g / (1 + e^-g); i in [0, n).
void swiglu(const float* gate, const float* up, int64_t n, float* out);

// With s = 1 / (1 + e^-gate):
//   dgate = dout * up * s * (1 + gate * (1 - s)), dup = dout * gate * s
void swiglu_backward(const float* dout, const float* gate, const float* up, int64_t n, float* dgate, float* dup);

}  // namespace mft
