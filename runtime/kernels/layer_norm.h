#pragma once

#include <cstdint>

namespace mft {

// Layer norm without weight and bias; the backward needs the output and not x. x, z [T, D], rstd [T]:
//   rstd = 1 / sqrt(mean((x - mean(x))^2) + eps), z = (x - mean(x)) * rstd
void layer_norm(const float* x, int64_t t, int64_t d, float eps, float* z, float* rstd);

// Gradient for dz [T, D]; dx may be dz:
//   dx = rstd * (dz - mean(dz) - z * mean(dz * z))
void layer_norm_backward(const float* dz, const float* z, const float* rstd, int64_t t, int64_t d, float* dx);

}  // namespace mft
