#include "runtime/kernels/elementwise/glu.h"

#include <algorithm>

#include "runtime/kernels/elementwise/activations.h"
#include "runtime/platform/threads.h"
#include "runtime/platform/vec.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t kStep = 16384;

template <Activation (*act)(Vec)>
void forward(const float* gate, const float* up, int64_t n, float* out) {
  parallel_ranges(n, kStep, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kVec) {
      const int64_t count = std::min<int64_t>(kVec, end - i);
      store_part(out + i, act(load_part(gate + i, count)).value * load_part(up + i, count), count);
    }
  });
}

template <Activation (*act)(Vec)>
void backward(const float* dout, const float* gate, const float* up, int64_t n, float* dgate, float* dup) {
  parallel_ranges(n, kStep, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kVec) {
      const int64_t count = std::min<int64_t>(kVec, end - i);
      const Vec d = load_part(dout + i, count);
      const Activation a = act(load_part(gate + i, count));
      store_part(dgate + i, d * load_part(up + i, count) * a.slope, count);
      store_part(dup + i, d * a.value, count);
    }
  });
}

}  // namespace

void glu(Glu kind, const float* gate, const float* up, int64_t n, float* out) {
  (kind == Glu::kSwiglu ? forward<silu> : forward<gelu_tanh>)(gate, up, n, out);
}

void glu_backward(Glu kind, const float* dout, const float* gate, const float* up, int64_t n, float* dgate,
                  float* dup) {
  (kind == Glu::kSwiglu ? backward<silu> : backward<gelu_tanh>)(dout, gate, up, n, dgate, dup);
}

}  // namespace mft::MFT_ISA
