#pragma once

// The innermost step of the integer products: one run of codes of a tile's rows times that of a panel's columns. How
// sums lie in registers meanwhile is the instruction set's own affair: row_sum() takes them out.

#include <cstdint>

#include "runtime/kernels/linear/gemm.h"
#include "runtime/kernels/linear/int8_vec.h"

namespace mft::MFT_ISA {

constexpr int kTileVecs = kTileCols / kVec;

#if defined(__ARM_FEATURE_MATMUL_INT8)
constexpr int kRowsAtOnce = kTileRows;
// Rows in pairs: sums[r] and sums[r + 1] have both rows each, of two of every four columns.
static_assert(kWeightOffset == 0, "both rows start from the same");
constexpr int sum_rows(int rows) { return rows + rows % 2; }

template <int R>
[[gnu::always_inline]] inline void add_step(const int8_t* a, const uint8_t* b, VecI sums[][kTileVecs]) {
  VecB rows[sum_rows(R) / 2];
#pragma GCC unroll 12
  for (int r = 0; r < R; r += 2) rows[r / 2] = load_wide(a + r * kDepth);
#pragma GCC unroll 8
  for (int j = 0; j < 2 * kTileVecs; ++j) {
    // GCC would load all columns first, and have no register left for two of the sums.
    if (j == kTileVecs) asm volatile("" ::: "memory");
    const VecB columns = load_wide(b + j * kVecBytes);
#pragma GCC unroll 12
    for (int r = 0; r < R; r += 2) {
      VecI& sum = sums[r + j % 2][j / 2];
      sum = dot8_pairs(sum, columns, rows[r / 2]);
    }
  }
}

inline VecI row_sum(const VecI sums[][kTileVecs], int row, int v) {
  const VecI left = sums[row - row % 2][v], right = sums[row - row % 2 + 1][v];
  return row % 2 == 0 ? __builtin_shufflevector(left, right, 0, 1, 4, 5)
                      : __builtin_shufflevector(left, right, 2, 3, 6, 7);
}
#else
constexpr int sum_rows(int rows) { return rows; }

inline VecI row_sum(const VecI sums[][kTileVecs], int row, int v) { return sums[row][v]; }

#if defined(MFT_PAIR_SUMS)
// Two quads of columns stay in registers, which leaves room for the sums of half a tile.
constexpr int kRowsAtOnce = kTileRows / 2;

template <int R>
[[gnu::always_inline]] inline void add_step(const int8_t* a, const uint8_t* b, VecI sums[][kTileVecs]) {
  VecB columns[2][kTileVecs];
#pragma GCC unroll 4
  for (int v = 0; v < kTileVecs; ++v) {
    columns[0][v] = load_wide(b + v * kVecBytes);
    columns[1][v] = load_wide(b + 4 * kTileCols + v * kVecBytes);
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
    const int8_t* row = a + 4 * r;
    const VecI first = splat_4(row), second = splat_4(row + 4 * kTileRows), correction = splat_4(row + 8 * kTileRows);
#pragma GCC unroll 4
    for (int v = 0; v < kTileVecs; ++v) {
      const VecHU product = pair_sums(columns[0][v], first) + pair_sums(columns[1][v], second) + (VecHU)correction;
      sums[r][v] += add_halves(product);
    }
  }
}
#else
constexpr int kRowsAtOnce = kTileRows;

template <int R>
[[gnu::always_inline]] inline void add_step(const int8_t* a, const uint8_t* b, VecI sums[][kTileVecs]) {
  VecB columns[kTileVecs];
#pragma GCC unroll 4
  for (int v = 0; v < kTileVecs; ++v) columns[v] = load_wide(b + v * kVecBytes);
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVecs; ++v) sums[r][v] = dot4(sums[r][v], columns[v], a, r);
  }
}
#endif
#endif

}  // namespace mft::MFT_ISA
