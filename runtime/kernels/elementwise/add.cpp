#include "runtime/kernels/elementwise/add.h"

#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t kStep = 65536;  // below this the memory is faster than a second thread is awake

}  // namespace

void add(const float* a, const float* b, int64_t n, float* out) {
  parallel_ranges(n, kStep, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = a[i] + b[i];
  });
}

}  // namespace mft::MFT_ISA
