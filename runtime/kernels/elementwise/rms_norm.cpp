#include "runtime/kernels/elementwise/rms_norm.h"

#include <cmath>

#include "runtime/platform/threads.h"
#include "runtime/platform/vec.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t kRows = 16;

}  // namespace

void rms_norm(const float* x, const float* weight, int64_t t, int64_t d, float eps, float* y, float* rstd) {
  parallel_ranges(t, kRows, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* row = x + i * d;
      float* out = y + i * d;
      Vec squares{};
      int64_t k = 0;
      for (; k + kVec <= d; k += kVec) {
        const Vec v = load(row + k);
        squares += v * v;
      }
      float total = sum(squares);
      for (; k < d; ++k) total += row[k] * row[k];
      const float r = 1.f / std::sqrt(total / static_cast<float>(d) + eps);
      for (int64_t j = 0; j < d; ++j) out[j] = row[j] * r * weight[j];
      rstd[i] = r;
    }
  });
}

void rms_norm_backward(const float* dy, const float* x, const float* weight, const float* rstd, int64_t t, int64_t d,
                       float* dx) {
  parallel_ranges(t, kRows, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* row = x + i * d;
      const float* grad = dy + i * d;
      float* out = dx + i * d;
      Vec dots{};
      int64_t k = 0;
      for (; k + kVec <= d; k += kVec) dots += load(grad + k) * load(weight + k) * load(row + k);
      float dot = sum(dots);
      for (; k < d; ++k) dot += grad[k] * weight[k] * row[k];
      const float r = rstd[i];
      const float factor = dot * r / static_cast<float>(d);  // mean(dz * z)
      for (int64_t j = 0; j < d; ++j) out[j] = r * (grad[j] * weight[j] - row[j] * r * factor);
    }
  });
}

}  // namespace mft::MFT_ISA
