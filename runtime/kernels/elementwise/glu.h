#pragma once

#include <cstdint>

namespace mft {

// Gated linear units by their activation: silu(g) = g / (1 + e^-g), or the tanh approximation of gelu,
// gelu(g) = g / (1 + e^-t) with t = 2 sqrt(2 / pi) (g + 0.044715 g^3).
enum class Glu { kSwiglu, kGeglu };

namespace MFT_ISA {

// out[i] = act(gate[i]) * up[i]; i in [0, n).
void glu(Glu kind, const float* gate, const float* up, int64_t n, float* out);

//   dgate = dout * up * act'(gate), dup = dout * act(gate)
void glu_backward(Glu kind, const float* dout, const float* gate, const float* up, int64_t n, float* dgate, float* dup);

}  // namespace MFT_ISA
}  // namespace mft
