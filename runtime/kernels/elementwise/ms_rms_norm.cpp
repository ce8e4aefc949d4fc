#include "runtime/kernels/elementwise/ms_rms_norm.h"

#include <cmath>

#include "runtime/kernels/linear/row_sums.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t kRows = 16;

}  // namespace

void ms_rms_norm(const float* x, int64_t t, int64_t d, float eps, float* z, float* rstd) {
  parallel_ranges(t, kRows, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* row = x + i * d;
      float* out = z + i * d;
      const float r = 1.f / std::sqrt(row_dot(row, row, d) / static_cast<float>(d) + eps);
      for (int64_t j = 0; j < d; ++j) out[j] = row[j] * r;
      rstd[i] = r;
    }
  });
}

void ms_rms_norm_backward(const float* dz, const float* z, const float* rstd, int64_t t, int64_t d, float* dx) {
  parallel_ranges(t, kRows, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* row = z + i * d;
      const float* grad = dz + i * d;
      float* out = dx + i * d;
      const float dot = row_dot(grad, row, d) / static_cast<float>(d);
      for (int64_t j = 0; j < d; ++j) out[j] = rstd[i] * (grad[j] - row[j] * dot);
    }
  });
}

}  // namespace mft::MFT_ISA
