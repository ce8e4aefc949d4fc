#include "runtime/kernels/linear/int8_gemm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "runtime/kernels/linear/decode.h"
#include "runtime/kernels/linear/int8_panel.h"
#include "runtime/kernels/linear/int8_step.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t kBlockSteps = kInt8Block / kRun;

// to [R][kTileCols] = products(row, vector) of a block, times their scales, plus `from` [R][kTileCols], which may be
// null or `to` itself.
template <int R, typename Products>
[[gnu::always_inline]] inline void scale_products(const Products& products, const float* __restrict scales,
                                                  const float* __restrict column_scales, const float* from, int64_t ldf,
                                                  float* to, int64_t ldt) {
#pragma GCC unroll 4
  for (int v = 0; v < kTileVecs; ++v) {
    const Vec column_scale = load(column_scales + v * kVec);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const Vec product = to_float(products(r, v)) * column_scale;
      const Vec before = from != nullptr ? load(from + r * ldf + v * kVec) : Vec{};
      store(to + r * ldt + v * kVec, before + product * scales[r]);
    }
  }
}

#if defined(__AMX_INT8__)
// C [R][kTileCols] = the product of R rows of a tile and a whole panel, `steps` of kRun long, plus `from`, which may be
// null or C itself. `sums` [R][kTileCols] are overwritten on the way.
template <int R>
void tile_kernel(int64_t steps, const int8_t* __restrict a, const float* __restrict scales, const int32_t*,
                 const uint8_t* __restrict b, const float* __restrict column_scales, const float* from, int64_t ldf,
                 float* sums, float* c, int64_t ldc) {
  // A block is scaled while the unit multiplies the next one, whose products take long to reach the memory.
  alignas(64) int32_t products[2][kTileRows][kTileCols];
  const int64_t blocks = ceil_div(steps, kBlockSteps);
  const auto multiply = [&](int64_t block) {
    tile_products(std::min(steps - block * kBlockSteps, kBlockSteps), a + block * kBlockSteps * kRunBytes * kTileRows,
                  b + block * kInt8Block * kTileCols, products[block % 2][0]);
  };
  const auto add = [&](int64_t block, const float* before, int64_t ldb, float* to, int64_t ldt) {
    const auto& of_block = products[block % 2];
    const auto product = [&](int r, int v) { return (VecI)load_wide(of_block[r] + v * kVec); };
    scale_products<R>(product, scales + block * kTileRows, column_scales + block * kTileCols, before, ldb, to, ldt);
  };
  multiply(0);
  if (blocks == 1) return add(0, from, ldf, c, ldc);
  multiply(1);
  add(0, from, ldf, sums, kTileCols);
  for (int64_t i = 2; i < blocks; ++i) {
    multiply(i);
    add(i - 1, sums, kTileCols, sums, kTileCols);
  }
  add(blocks - 1, sums, kTileCols, c, ldc);
}
#else
// C [R][kTileCols] = the product of R rows of a tile and a block of a panel, `steps` of kRun long, plus `from`
// [R][kTileCols], which may be null or C itself.
template <int R>
[[gnu::always_inline]] inline void block_kernel(int64_t steps, const int8_t* __restrict a,
                                                const float* __restrict scales, const int32_t* __restrict starts,
                                                const uint8_t* __restrict b, const float* __restrict column_scales,
                                                const float* from, int64_t ldf, float* c, int64_t ldc) {
  constexpr int kSumRows = sum_rows(R);
  VecI sums[kSumRows][kTileVecs];
#pragma GCC unroll 12
  for (int r = 0; r < kSumRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVecs; ++v) sums[r][v] = starts[r] - VecI{};
  }
  for (int64_t s = steps; s > 0; --s, a += kRunBytes * kTileRows, b += kRun * kTileCols) add_step<R>(a, b, sums);
  scale_products<R>([&](int r, int v) { return row_sum(sums, r, v); }, scales, column_scales, from, ldf, c, ldc);
}

// The same of one tile of rows, of which R count, and a whole panel. `sums` [R][kTileCols] are overwritten on the way.
template <int R>
void tile_kernel(int64_t steps, const int8_t* __restrict a, const float* __restrict scales,
                 const int32_t* __restrict starts, const uint8_t* __restrict b, const float* __restrict column_scales,
                 const float* from, int64_t ldf, float* sums, float* c, int64_t ldc) {
  constexpr int kFirst = R < kRowsAtOnce ? R : kRowsAtOnce;
  for (; steps > 0; steps -= kBlockSteps) {
    const int64_t some = std::min(steps, kBlockSteps);
    float* to = steps > kBlockSteps ? sums : c;
    const int64_t ldt = steps > kBlockSteps ? kTileCols : ldc;
    block_kernel<kFirst>(some, a, scales, starts, b, column_scales, from, ldf, to, ldt);
    if constexpr (R > kFirst) {
      block_kernel<R - kFirst>(some, a + kFirst * kDepth, scales + kFirst, starts + kFirst, b, column_scales,
                               from != nullptr ? from + kFirst * ldf : nullptr, ldf, to + kFirst * ldt, ldt);
    }
    from = sums, ldf = kTileCols;
    a += kBlockSteps * kRunBytes * kTileRows;
    b += kInt8Block * kTileCols;
    scales += kTileRows;
    starts += kTileRows;
    column_scales += kTileCols;
  }
}
#endif

using TileKernel = void (*)(int64_t, const int8_t*, const float*, const int32_t*, const uint8_t*, const float*,
                            const float*, int64_t, float*, float*, int64_t);

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
  float* sums;   // of a tile of C, [kTileRows][kTileCols]

  static constexpr int64_t bytes(int64_t rank) {
    return Int8Panel::kCodeBytes + 4 * (Int8Panel::kScales + rank * kTileCols + kTileRows * kTileCols);
  }
  Work(std::byte* base, int64_t rank) {
    panel.codes = reinterpret_cast<uint8_t*>(base);
    panel.scales = reinterpret_cast<float*>(base + Int8Panel::kCodeBytes);
    right = panel.scales + Int8Panel::kScales;
    sums = right + rank * kTileCols;
  }
};

// to [rows, nr] = from.
void copy_rows(const float* from, int64_t ldf, float* to, int64_t ldt, int64_t rows, int64_t nr) {
  for (int64_t r = 0; r < rows; ++r, from += ldf, to += ldt) {
    for (int64_t j = 0; j < nr; j += kVec) {
      const int64_t lanes = std::min<int64_t>(kVec, nr - j);
      store_part(to + j, load_part(from + j, lanes), lanes);
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

constexpr int64_t most_rank(int64_t rank) { return rank + kOutliers; }

}  // namespace

void Int8Forward::load(int64_t n0, int64_t nr, int64_t k0, int64_t kc, Int8Panel out) const {
  load_int8_panel(w_, n0, nr, k0, kc, out);
}

void Int8Transposed::load(int64_t n0, int64_t nr, int64_t k0, int64_t kc, Int8Panel out) const {
  load_int8_panel_transposed(w_, k0, kc, n0, nr, out);
}

void multiply_int8_panel(const Int8Rows& a, int64_t tile, int64_t k0, int64_t kc, Int8Panel panel, AddTo add_to,
                         float* sums, float* c, int64_t ldc, int64_t nr) {
  const int64_t rows = std::min(kTileRows, a.m - tile * kTileRows);
  const int64_t scales = a.tile_scales(tile) + k0 / kInt8Block * kTileRows;
  if (add_to == AddTo::kC) prefetch_tile(c, rows, nr, ldc);
  const bool whole = nr == kTileCols;
  const float* from = add_to == AddTo::kC ? c : add_to == AddTo::kSums ? sums : nullptr;
  // Rows of C lie so far apart that they drive each other out of the cache: not there for every block.
  const bool copied = add_to == AddTo::kC && !(whole && kc <= kInt8Block);
  if (copied) copy_rows(c, ldc, sums, kTileCols, rows, nr);
  if (copied) from = sums;
  kTileKernels[static_cast<size_t>(rows - 1)](
      ceil_div(kc, kRun), a.tile_codes(tile) + Int8Rows::index(k0, 0), a.scales + scales, a.starts + scales,
      panel.codes, panel.scales, from, from == c ? ldc : kTileCols, sums, whole ? c : sums, whole ? ldc : kTileCols);
  if (!whole) copy_rows(sums, kTileCols, c, ldc, rows, nr);
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
  parallel_for(rank > 0 ? tiles : 0, [&](int64_t tile) {
    const int64_t first = tile * kTileRows, rows = std::min(kTileRows, a.m - first);
    float* out = packed + tile * packed_floats(kTileRows, rank);
    for (int64_t i = 0; i < left_out; ++i, out += kTileRows) {
      for (int64_t r = 0; r < kTileRows; ++r) {
        out[r] = r < rows ? outliers->x[(first + r) * k + outliers->columns[i]] : 0.f;
      }
    }
    if (summand == nullptr) return;
    const Mat& left = summand->left;
    const float* lefts[kTileRows];
    for (int64_t r = 0; r < kTileRows; ++r) lefts[r] = r < rows ? left.p + (first + r) * left.row : nullptr;
    pack_tile(lefts, left.col, summand->rank, summand->alpha, out);
  });

  const int64_t size = round_up(ceil_div(k, ceil_div(k, kInt8Chunk)), kInt8Block);
  const int64_t panels = ceil_div(n, kTileCols);
  // Few columns: split the rows too, and load the panel once for each part.
  const int64_t threads = thread_count();
  const int64_t row_split = panels >= 4 * threads ? 1 : std::min(tiles, ceil_div(4 * threads, panels));
  const int64_t tile_step = ceil_div(tiles, row_split), row_items = ceil_div(tiles, tile_step);
  parallel_for_worker(panels * row_items, [&](int64_t item, int64_t worker) {
    const MatrixUnit unit;
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
        float* out = c + tile * kTileRows * ldc + n0;
        AddTo add_to = k0 > 0 ? AddTo::kC : AddTo::kNothing;
        if (k0 == 0) prefetch_tile(out, rows, nr, ldc);
        if (k0 == 0 && rank > 0) {
          multiply_panel(packed + tile * packed_floats(kTileRows, rank), rows, rank, mine.right, kTileCols, mine.sums,
                         kTileCols, kTileCols, false);
          add_to = AddTo::kSums;
        }
        multiply_int8_panel(a, tile, k0, kc, mine.panel, add_to, mine.sums, out, ldc, nr);
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
