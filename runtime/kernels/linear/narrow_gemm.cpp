#include "runtime/kernels/linear/narrow_gemm.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/platform/threads.h"
#include "runtime/platform/vec.h"

namespace mft::MFT_ISA {
namespace {

// Rows of A multiplied together: enough to hide the latency of a multiply-add, and no more than L1 has ways, since rows
// may lie a power of two apart.
constexpr int64_t kRows = std::min<int64_t>(kTileRows, 8);
constexpr int kTileVecs = kTileCols / kVec;
// Of U, packed by one thread at a time: less is done sooner than a second thread is awake.
constexpr int64_t kPackStep = 2048;

// C [R, nr] = A times a panel, of whose rows, ldp apart, V vectors count.
template <int R, int V>
void kernel(int64_t k, const float* __restrict a, const float* __restrict panel, int64_t ldp, float* __restrict c,
            int64_t ldc, int64_t nr) {
  Vec sums[R][V] = {};
  for (int64_t i = 0; i < k; ++i, panel += ldp) {
    Vec columns[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) columns[v] = load(panel + v * kVec);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[r][v] += splat(a[r * k + i]) * columns[v];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const int64_t lanes = std::min<int64_t>(kVec, nr - v * kVec);
      if (lanes > 0) store_part(c + r * ldc + v * kVec, sums[r][v], lanes);
    }
  }
}

using Kernel = void (*)(int64_t, const float*, const float*, int64_t, float*, int64_t, int64_t);

template <int V, int... kRowsLessOne>
constexpr std::array<Kernel, kRows> kernels_of(std::integer_sequence<int, kRowsLessOne...>) {
  return {kernel<kRowsLessOne + 1, V>...};
}
using Rows = std::make_integer_sequence<int, static_cast<int>(kRows)>;
// By whether a panel's whole width counts, and rows less one.
constexpr std::array<Kernel, kRows> kKernels[] = {kernels_of<kTileVecs / 2>(Rows{}), kernels_of<kTileVecs>(Rows{})};

}  // namespace

void narrow_gemm(int64_t m, int64_t n, int64_t k, const float* a, Mat u, float* c, Scratch scratch) {
  // Rows of U that the kernels can read where they lie are not packed.
  const bool packed = u.col != 1 || n % (kTileCols / 2) != 0;
  float* panels = scratch.take(panel_floats(k, n));
  parallel_ranges(packed ? k : 0, kPackStep, [&](int64_t begin, int64_t end) {
    for (int64_t n0 = 0; n0 < n; n0 += kTileCols) {
      pack_panels({u.p + begin * u.row + n0 * u.col, u.row, u.col}, end - begin, std::min(kTileCols, n - n0),
                  panels + n0 * k + begin * kTileCols);
    }
  });
  parallel_ranges(m, kRows, [&](int64_t begin, int64_t end) {
    for (int64_t n0 = 0; n0 < n; n0 += kTileCols) {
      const int64_t nr = std::min(kTileCols, n - n0);
      kKernels[nr > kTileCols / 2][static_cast<size_t>(end - begin - 1)](
          k, a + begin * k, packed ? panels + n0 * k : u.p + n0, packed ? kTileCols : u.row, c + begin * n + n0, n, nr);
    }
  });
}

size_t narrow_gemm_scratch_bytes(int64_t n, int64_t k) {
  ScratchSize size;
  size.take(panel_floats(k, n));
  return size.bytes;
}

}  // namespace mft::MFT_ISA
