#include "runtime/kernels/swiglu.h"

#include "runtime/kernels/activations.h"
#include "runtime/kernels/threads.h"
#include "runtime/kernels/vec.h"

namespace mft {
namespace {

constexpr int64_t kStep = 16384;

}  // namespace

void swiglu(const float* gate, const float* up, int64_t n, float* out) {
  parallel_ranges(n, kStep, [&](int64_t begin, int64_t end) {
    int64_t i = begin;
    for (; i + kVec <= end; i += kVec) {
      const Vec g = load(gate + i);
      store(out + i, g * sigmoid(g) * load(up + i));
    }
    if (i < end) {
      const Vec g = load_part(gate + i, end - i);
      store_part(out + i, g * sigmoid(g) * load_part(up + i, end - i), end - i);
    }
  });
}

void swiglu_backward(const float* dout, const float* gate, const float* up, int64_t n, float* dgate, float* dup) {
  parallel_ranges(n, kStep, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kVec) {
      const int64_t count = std::min<int64_t>(kVec, end - i);
      const bool whole = count == kVec;
      const Vec d = whole ? load(dout + i) : load_part(dout + i, count);
      const Vec g = whole ? load(gate + i) : load_part(gate + i, count);
      const Vec u = whole ? load(up + i) : load_part(up + i, count);
      const Vec s = sigmoid(g);
      const Vec dg = d * u * s * (1.f + g * (1.f - s));
      const Vec du = d * g * s;
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
