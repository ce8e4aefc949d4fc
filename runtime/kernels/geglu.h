#pragma once

#include <cstdint>

namespace mft {

// out[i] = gelu(gate[i]) * up[i], gelu(g) = g * s with s = 1 / (1 + e^-t), t = 2 sqrt(2 / pi) * (g + 0.044715 g^3),
// which is the tanh approximation; i in [0, n).
void geglu(const float* gate, const float* up, int64_t n, float* out);

//   dgate = dout * up * s * (1 + gate * (1 - s) * dt/dg), dup = dout * gate * s
void geglu_backward(const float* dout, const float* gate, const float* up, int64_t n, float* dgate, float* dup);

}  // namespace mft
