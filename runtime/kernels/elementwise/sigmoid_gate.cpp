#include "runtime/kernels/elementwise/sigmoid_gate.h"

#include <algorithm>
#include <cmath>

#include "runtime/kernels/elementwise/activations.h"
#include "runtime/kernels/elementwise/each_part.h"
#include "runtime/kernels/linear/row_sums.h"

namespace mft::MFT_ISA {
namespace {

float sigmoid_of(float x) { return 1.f / (1.f + std::exp(-x)); }

template <typename Rows>
void each_range(int64_t rows, int64_t width, const Rows& body) {
  parallel_ranges(rows, std::max<int64_t>(1, 16384 / width), body);
}

}  // namespace

void sigmoid_gate(const float* x, const float* gate, int64_t rows, int64_t width, float* y) {
  if (width == 1) {  // a gate for every element
    return each_part(rows, [&](int64_t i, int64_t count) {
      store_part(y + i, load_part(x + i, count) * sigmoid(load_part(gate + i, count)), count);
    });
  }
  each_range(rows, width, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float s = sigmoid_of(gate[i]);
      for (int64_t j = i * width; j < (i + 1) * width; ++j) y[j] = x[j] * s;
    }
  });
}

void sigmoid_gate_backward(const float* dy, const float* x, const float* gate, int64_t rows, int64_t width, float* dx,
                           float* dgate) {
  if (width == 1) {
    return each_part(rows, [&](int64_t i, int64_t count) {
      const Vec d = load_part(dy + i, count), s = sigmoid(load_part(gate + i, count));
      store_part(dx + i, d * s, count);
      store_part(dgate + i, d * load_part(x + i, count) * s * (1.f - s), count);
    });
  }
  each_range(rows, width, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float s = sigmoid_of(gate[i]);
      dgate[i] = s * (1.f - s) * row_dot(dy + i * width, x + i * width, width);
      for (int64_t j = i * width; j < (i + 1) * width; ++j) dx[j] = dy[j] * s;
    }
  });
}

}  // namespace mft::MFT_ISA
