#pragma once

#include <cstdint>

namespace mft::MFT_ISA {

// y[i][j] = x[i][j] sigmoid(gate[i]) for x [rows, width] and gate [rows].
void sigmoid_gate(const float* x, const float* gate, int64_t rows, int64_t width, float* y);

// With s = sigmoid(gate[i]):
//   dx[i][j] = dy[i][j] s, dgate[i] = s (1 - s) sum_j dy[i][j] x[i][j]
void sigmoid_gate_backward(const float* dy, const float* x, const float* gate, int64_t rows, int64_t width, float* dx,
                           float* dgate);

}  // namespace mft::MFT_ISA
