#include "runtime/kernels/attention/channels.h"

#include <algorithm>
#include <cmath>

#include "runtime/platform/threads.h"
#include "runtime/platform/vec.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t kStrip = 2 * kVec;  // channels that one item looks at
constexpr float kLeast = 1e-15f;      // of a channel that has no values

// The largest magnitudes of the channels [0, n) in z, `rows` rows with `ld` between them, and the ones so far.
void add_largest(const float* z, int64_t rows, int64_t ld, int64_t n, Vec most[2]) {
  const int64_t lanes[2] = {std::min<int64_t>(n, kVec), std::max<int64_t>(0, n - kVec)};
  constexpr int kChains = 4;  // hide the latency of a maximum
  Vec chains[kChains][2] = {};
  for (int64_t i = 0; i < rows; i += kChains) {
#pragma GCC unroll 4
    for (int c = 0; c < kChains; ++c) {
      const float* row = z + std::min(rows - 1, i + c) * ld;
      for (int v = 0; v < 2; ++v) {
        const Vec values = load_part(row + v * kVec, lanes[v]);
        chains[c][v] = vmax(chains[c][v], vmax(values, -values));
      }
    }
  }
  for (int v = 0; v < 2; ++v) {
    for (const auto& chain : chains) most[v] = vmax(most[v], chain[v]);
  }
}

}  // namespace

void balance_channels(const AttentionShape& shape, const float* x, const float* y, float* x_channels,
                      float* y_channels) {
  const int64_t group = shape.heads / shape.kv_heads, dim = shape.dim, strips = ceil_div(dim, kStrip);
  parallel_for(shape.kv_heads * strips, [&](int64_t item) {
    const int64_t kv_head = item / strips, first = item % strips * kStrip, n = std::min(kStrip, dim - first);
    Vec of_x[2] = {splat(kLeast), splat(kLeast)}, of_y[2] = {splat(kLeast), splat(kLeast)};
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      add_largest(x + head * dim + first, shape.t, shape.heads * dim, n, of_x);
    }
    add_largest(y + kv_head * dim + first, shape.t, shape.kv_heads * dim, n, of_y);
    for (int64_t c = 0; c < n; ++c) {
      const float factor = std::sqrt(of_y[c / kVec][c % kVec] / of_x[c / kVec][c % kVec]);
      x_channels[kv_head * dim + first + c] = factor;
      y_channels[kv_head * dim + first + c] = 1.f / factor;
    }
  });
}

}  // namespace mft::MFT_ISA
