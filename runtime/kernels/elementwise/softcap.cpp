#include "runtime/kernels/elementwise/softcap.h"

#include "runtime/kernels/elementwise/activations.h"
#include "runtime/kernels/elementwise/each_part.h"

namespace mft::MFT_ISA {

void softcap(const float* x, int64_t n, float cap, float* y) {
  each_part(n, [&](int64_t i, int64_t count) { store_part(y + i, cap * tanh(load_part(x + i, count) / cap), count); });
}

}  // namespace mft::MFT_ISA
