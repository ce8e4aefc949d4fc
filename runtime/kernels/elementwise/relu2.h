#pragma once

#include <cstdint>

namespace mft::MFT_ISA {

// The squared ReLU (arXiv 2109.08668): y[i] = max(x[i], 0)^2; i in [0, n).
void relu2(const float* x, int64_t n, float* y);

//   dx = 2 dy max(x, 0)
void relu2_backward(const float* dy, const float* x, int64_t n, float* dx);

}  // namespace mft::MFT_ISA
