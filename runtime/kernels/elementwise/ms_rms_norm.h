#pragma once

#include <cstdint>

namespace mft::MFT_ISA {

// RMS norm without a weight; the backward needs the output and not x. x, z [T, D], rstd [T]:
//   rstd = 1 / sqrt(mean(x^2) + eps), z = x * rstd
void ms_rms_norm(const float* x, int64_t t, int64_t d, float eps, float* z, float* rstd);

// Gradient for dz [T, D]; dx may be dz:
//   dx = rstd * (dz - z * mean(dz * z))
void ms_rms_norm_backward(const float* dz, const float* z, const float* rstd, int64_t t, int64_t d, float* dx);

}  // namespace mft::MFT_ISA
