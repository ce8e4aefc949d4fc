#include "runtime/kernels/elementwise/add_bias.h"

#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t kRows = 64;

}  // namespace

void add_bias(const float* x, const float* bias, int64_t t, int64_t d, float* out) {
  parallel_ranges(t, kRows, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < d; ++j) out[i * d + j] = x[i * d + j] + bias[j];
    }
  });
}

}  // namespace mft::MFT_ISA
