#include "runtime/kernels/int8_gemm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "runtime/kernels/decode.h"
#include "runtime/kernels/int8_panel.h"
#include "runtime/kernels/int8_step.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t kBlockSteps = kInt8Block / kRun;

// tile [R][kTileCols] (+)= the product of R rows of a tile and a block of a panel, `steps` of kRun long.
template <int R>
[[gnu::always_inline]] inline void block_kernel(int64_t steps, const int8_t* __restrict a,
                                                const float* __restrict scales, const int32_t* __restrict starts,
                                                const uint8_t* __restrict b, const float* __restrict column_scales,
                                                float* __restrict tile, bool accumulate) {
  constexpr int kSumRows = sum_rows(R);
  VecI sums[kSumRows][kTileVecs];
#pragma GCC unroll 12
  for (int r = 0; r < kSumRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVecs; ++v) sums[r][v] = starts[r] - VecI{};
  }
  for (int64_t s = steps; s > 0; --s, a += kRunBytes * kTileRows, b += kRun * kTileCols) add_step<R>(a, b, sums);
#pragma GCC unroll 4
  for (int v = 0; v < kTileVecs; ++v) {
    const Vec column_scale = load(column_scales + v * kVec);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      float* p = tile + r * kTileCols + v * kVec;
      const Vec product = to_float(row_sum(sums, r, v)) * column_scale;
      store(p, accumulate ? load(p) + product * scales[r] : product * scales[r]);
    }
  }
}

// tile [R][kTileCols] (+)= the product of one tile of rows, of which R count, and a panel, `steps` of kRun long.
template <int R>
void tile_kernel(int64_t steps, const int8_t* __restrict a, const float* __restrict scales,
                 const int32_t* __restrict starts, const uint8_t* __restrict b, const float* __restrict column_scales,
                 float* __restrict tile, bool accumulate) {
  constexpr int kFirst = R < kRowsAtOnce ? R : kRowsAtOnce;
  for (; steps > 0; steps -= kBlockSteps) {
    const int64_t some = std::min(steps, kBlockSteps);
    block_kernel<kFirst>(some, a, scales, starts, b, column_scales, tile, accumulate);
    if constexpr (R > kFirst) {
      block_kernel<R - kFirst>(some, a + kFirst * kDepth, scales + kFirst, starts + kFirst, b, column_scales,
                               tile + kFirst * kTileCols, accumulate);
    }
    accumulate = true;
    a += kBlockSteps * kRunBytes * kTileRows;
    b += kInt8Block * kTileCols;
    scales += kTileRows;
    starts += kTileRows;
    column_scales += kTileCols;
  }
}

using TileKernel = void (*)(int64_t, const int8_t*, const float*, const int32_t*, const uint8_t*, const float*, float*,
                            bool);

template <int... kRowsLessOne>
constexpr std::array<TileKernel, kTileRows> tile_kernels(std::integer_sequence<int, kRowsLessOne...>) {
  return {tile_kernel<kRowsLessOne + 1>...};
}
constexpr std::array<TileKernel, kTileRows> kTileKernels =
    tile_kernels(std::make_integer_sequence<int, static_cast<int>(kTileRows)>{});

// What one thread works with.
struct Work {
  Int8Panel panel;
  float* right;  // of the summands, [rank][kTileCols]
  float* tile;   // of C; rows of C itself lie so far apart that they drive each other out of the cache

  static constexpr int64_t bytes(int64_t rank) {
    return Int8Panel::kCodeBytes + 4 * (Int8Panel::kScales + rank * kTileCols + kTileRows * kTileCols);
  }
  Work(std::byte* base, int64_t rank) {
    panel.codes = reinterpret_cast<uint8_t*>(base);
    panel.scales = reinterpret_cast<float*>(base + Int8Panel::kCodeBytes);
    right = panel.scales + Int8Panel::kScales;
    tile = right + rank * kTileCols;
  }
};

// C [rows, nr] (+)= tile.
void put_tile(const float* tile, int64_t rows, int64_t nr, bool accumulate, float* c, int64_t ldc) {
  for (int64_t r = 0; r < rows; ++r, tile += kTileCols, c += ldc) {
    for (int64_t j = 0; j < nr; j += kVec) {
      const int64_t lanes = std::min<int64_t>(kVec, nr - j);
      const Vec sum = load(tile + j);
      store_part(c + j, accumulate ? load_part(c + j, lanes) + sum : sum, lanes);
    }
  }
}

// Rows of C lie far apart, where no prefetcher of the CPU's follows.
void prefetch_tile(float* c, int64_t rows, int64_t nr, int64_t ldc) {
  for (int64_t r = 0; r < rows; ++r, c += ldc) {
    for (int64_t j = 0; j < nr; j += 16) __builtin_prefetch(c + j, 1);
    __builtin_prefetch(c + nr - 1, 1);
  }
}

// tile (+)= rows of A times a panel of B's rows [k0, k0 + kc).
void multiply(const Int8Rows& a, int64_t tile, int64_t k0, int64_t kc, Int8Panel panel, float* sums, bool accumulate) {
  const int64_t rows = std::min(kTileRows, a.m - tile * kTileRows);
  const int64_t scales = a.tile_scales(tile) + k0 / kInt8Block * kTileRows;
  kTileKernels[static_cast<size_t>(rows - 1)](ceil_div(kc, kRun), a.tile_codes(tile) + Int8Rows::index(k0, 0),
                                              a.scales + scales, a.starts + scales, panel.codes, panel.scales, sums,
                                              accumulate);
}

constexpr int64_t most_rank(int64_t rank) { return rank + kOutliers; }

}  // namespace

void Int8Forward::load(int64_t n0, int64_t nr, int64_t k0, int64_t kc, Int8Panel out) const {
  load_int8_panel(w_, n0, nr, k0, kc, out);
}

void Int8Transposed::load(int64_t n0, int64_t nr, int64_t k0, int64_t kc, Int8Panel out) const {
  load_int8_panel_transposed(w_, k0, kc, n0, nr, out);
}

void multiply_int8_panel(const Int8Rows& a, int64_t tile, int64_t k0, int64_t kc, Int8Panel panel, float* sums,
                         float* c, int64_t ldc, int64_t nr, bool accumulate) {
  const int64_t rows = std::min(kTileRows, a.m - tile * kTileRows);
  multiply(a, tile, k0, kc, panel, sums, false);
  put_tile(sums, rows, nr, accumulate, c, ldc);
}

void int8_gemm(const Int8Rows& a, int64_t n, const Int8Source& b, const Outliers* outliers, const Summand* summand,
               float* c, int64_t ldc, Scratch scratch) {
  const int64_t k = a.k, tiles = Int8Rows::tiles(a.m);
  int64_t left_out = 0;
  while (outliers != nullptr && left_out < kOutliers && outliers->columns[left_out] < k) ++left_out;
  const int64_t rank = left_out + (summand != nullptr ? summand->rank : 0);

  // The float32 factors on the left, packed: outliers first, then the summand's.
  float* packed = scratch.take(static_cast<size_t>(packed_floats(a.m, rank)));
  const int64_t work_bytes = round_up(Work::bytes(rank), static_cast<int64_t>(kScratchAlign));
  std::byte* work = scratch.take_bytes(static_cast<size_t>(thread_count() * work_bytes));
  for (int64_t row = 0; row < round_up(a.m, kTileRows) && rank > 0; ++row) {
    float* out = packed + row / kTileRows * packed_floats(kTileRows, rank) + row % kTileRows;
    for (int64_t i = 0; i < left_out; ++i) {
      out[i * kTileRows] = row < a.m ? outliers->x[row * k + outliers->columns[i]] : 0.f;
    }
    for (int64_t i = left_out; i < rank; ++i) {
      const Mat& left = summand->left;
      out[i * kTileRows] = row < a.m ? summand->alpha * left.p[row * left.row + (i - left_out) * left.col] : 0.f;
    }
  }

  const int64_t size = round_up(ceil_div(k, ceil_div(k, kInt8Chunk)), kInt8Block);
  const int64_t panels = ceil_div(n, kTileCols);
  // Few columns: split the rows too, and load the panel once for each part.
  const int64_t threads = thread_count();
  const int64_t row_split = panels >= 4 * threads ? 1 : std::min(tiles, ceil_div(4 * threads, panels));
  const int64_t tile_step = ceil_div(tiles, row_split), row_items = ceil_div(tiles, tile_step);
  parallel_for_worker(panels * row_items, [&](int64_t item, int64_t worker) {
    const Work mine(work + worker * work_bytes, rank);
    const int64_t n0 = item / row_items * kTileCols, nr = std::min(kTileCols, n - n0);
    const int64_t first = item % row_items * tile_step, last = std::min(tiles, first + tile_step);
    for (int64_t i = 0; i < left_out; ++i) {
      load_panel(outliers->w, n0, nr, outliers->columns[i], 1, mine.right + i * kTileCols);
    }
    if (summand != nullptr) {
      const Mat& right = summand->right;
      pack_panels({right.p + n0 * right.col, right.row, right.col}, summand->rank, nr,
                  mine.right + left_out * kTileCols);
    }
    for (int64_t k0 = 0; k0 < k; k0 += size) {
      const int64_t kc = std::min(size, k - k0);
      b.load(n0, nr, k0, kc, mine.panel);
      for (int64_t tile = first; tile < last; ++tile) {
        const int64_t rows = std::min(kTileRows, a.m - tile * kTileRows);
        prefetch_tile(c + tile * kTileRows * ldc + n0, rows, nr, ldc);
        const bool with_float = k0 == 0 && rank > 0;
        if (with_float) {
          multiply_panel(packed + tile * packed_floats(kTileRows, rank), rows, rank, mine.right, kTileCols, mine.tile,
                         kTileCols, kTileCols, false);
        }
        multiply(a, tile, k0, kc, mine.panel, mine.tile, with_float);
        put_tile(mine.tile, rows, nr, k0 > 0, c + tile * kTileRows * ldc + n0, ldc);
      }
    }
  });
}

size_t int8_gemm_scratch_bytes(int64_t rank) {
  ScratchSize size;
  size.take(static_cast<size_t>(packed_floats(kRowBlock, most_rank(rank))));
  size.take_bytes(static_cast<size_t>(thread_count() *
                                      round_up(Work::bytes(most_rank(rank)), static_cast<int64_t>(kScratchAlign))));
  return size.bytes;
}

}  // namespace mft::MFT_ISA
