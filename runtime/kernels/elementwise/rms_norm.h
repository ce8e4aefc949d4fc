#pragma once

#include <cstdint>

namespace mft::MFT_ISA {

// x, y [T, D], weight [D], rstd [T]:
//   rstd = 1 / sqrt(mean(x^2) + eps), y = x * rstd * weight
void rms_norm(const float* x, const float* weight, int64_t t, int64_t d, float eps, float* y, float* rstd);

// Gradient for dy [T, D], with z = x * rstd and dz = dy * weight:
//   dx = rstd * (dz - z * mean(dz * z))
void rms_norm_backward(const float* dy, const float* x, const float* weight, const float* rstd, int64_t t, int64_t d,
                       float* dx);

}  // namespace mft::MFT_ISA
