#include "runtime/kernels/elementwise/affine.h"

#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {

void affine(const float* z, const float* weight, int64_t t, int64_t d, float* y) {
  parallel_ranges(t, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * d; i < end * d; i += d) {
      for (int64_t j = 0; j < d; ++j) y[i + j] = z[i + j] * weight[j];
    }
  });
}

}  // namespace mft::MFT_ISA
