#include "runtime/kernels/geglu.h"

#include "runtime/kernels/activations.h"
#include "runtime/kernels/threads.h"
#include "runtime/kernels/vec.h"

namespace mft {
namespace {

constexpr int64_t kStep = 16384;

}  // namespace

void geglu(const float* gate, const float* up, int64_t n, float* out) {
  parallel_ranges(n, kStep, [&](int64_t begin, int64_t end) {
    int64_t i = begin;
    for (; i + kVec <= end; i += kVec) store(out + i, gelu_tanh(load(gate + i)) * load(up + i));
    if (i < end) {
      store_part(out + i, gelu_tanh(load_part(gate + i, end - i)) * load_part(up + i, end - i), end - i);
    }
  });
}

void geglu_backward(const float* dout, const float* gate, const float* up, int64_t n, float* dgate, float* dup) {
  parallel_ranges(n, kStep, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kVec) {
      const int64_t count = std::min<int64_t>(kVec, end - i);
      const bool whole = count == kVec;
      const Vec d = whole ? load(dout + i) : load_part(dout + i, count);
      const Vec g = whole ? load(gate + i) : load_part(gate + i, count);
      const Vec u = whole ? load(up + i) : load_part(up + i, count);
      const Vec clamped = gelu_clamp(g);
      const Vec s = gelu_sigmoid(clamped);
      const Vec dt = kGeluScale * (1.f + 3.f * kGeluCube * clamped * clamped);
      const Vec dg = d * u * s * (1.f + clamped * (1.f - s) * dt);
      const Vec du = d * gelu_floor(g) * s;
      if (whole) {
        store(dgate + i, dg);
        store(dup + i, du);
      } else {
        store_part(dgate + i, dg, count);
        store_part(dup + i, du, count);
      }
    }
  });
}

}  // namespace mft
