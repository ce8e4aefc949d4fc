#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/elementwise/glu.h"

namespace mft {

// Gated activations whose backward needs 2 bits of each gate (Approx-BP, arXiv 2406.16282).

// The function h(x) = sum_i a_i max(x - c_i, 0) whose derivative stands in for that of the activation; c ascends.
struct ReluCombination {
  double a[3];
  double c[3];
};

// Of the codes of one row.
constexpr int64_t glu_2bit_code_bytes(int64_t d) { return (d + 3) / 4; }

namespace MFT_ISA {

// silu goes with ReSiLU2, gelu with ReGELU2.

// out = act(gate) * up, exact; all [T, D]. codes [T, glu_2bit_code_bytes(D)]: the code of element i of a row, the
// number of thresholds c below its gate, is in bits 2 (i % 4) and up of byte i / 4; unused bits are 0.
void glu_2bit(Glu kind, const float* gate, const float* up, int64_t t, int64_t d, float* out, uint8_t* codes);

//   dgate = dout * up * h'(gate), h' the sum of the a passed; dup = dout * y / up, or 0 where up is 0
void glu_2bit_backward(Glu kind, const float* dout, const float* up, const float* y, const uint8_t* codes, int64_t t,
                       int64_t d, float* dgate, float* dup);

}  // namespace MFT_ISA
}  // namespace mft
