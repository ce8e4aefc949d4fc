#include "runtime/kernels/elementwise/relu2.h"

#include "runtime/kernels/elementwise/each_part.h"

namespace mft::MFT_ISA {

void relu2(const float* x, int64_t n, float* y) {
  each_part(n, [&](int64_t i, int64_t count) {
    const Vec positive = vmax(load_part(x + i, count), Vec{});
    store_part(y + i, positive * positive, count);
  });
}

void relu2_backward(const float* dy, const float* x, int64_t n, float* dx) {
  each_part(n, [&](int64_t i, int64_t count) {
    const Vec positive = vmax(load_part(x + i, count), Vec{});
    store_part(dx + i, 2.f * positive * load_part(dy + i, count), count);
  });
}

}  // namespace mft::MFT_ISA
