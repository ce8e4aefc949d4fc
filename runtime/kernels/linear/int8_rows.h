#pragma once

// Activations in 8 bits, as the integer products take them.

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/linear/gemm.h"
#include "runtime/kernels/linear/int8_vec.h"

namespace mft::MFT_ISA {

// Numbers of a row that share a scale, the largest of them over 127.
constexpr int64_t kInt8Block = 128;
// Columns that are left out of the codes and multiplied in float32 instead: the few channels of an LLM's activations
// that are 10 to 1000 times larger than the rest would cost their block its bits (LLM.int8(), arXiv 2208.07339).
constexpr int64_t kOutliers = 8;

constexpr int64_t int8_row_blocks(int64_t k) { return (k + kInt8Block - 1) / kInt8Block; }
// What rows of codes are filled up to with zeros, and the products of a part of them may start at.
constexpr int64_t kRowStep = kRowDepth > 16 ? kRowDepth : 16;
constexpr int64_t padded_row(int64_t k) { return (k + kRowStep - 1) / kRowStep * kRowStep; }

// Magnitudes of floats as integers are in the same order, infinity and then NaN above all numbers.
constexpr int32_t kInfinityBits = 0x7f800000;
inline VecI magnitude_bits(Vec v) { return (VecI)v & 0x7fffffff; }

// x [m, k] as tiles of kTileRows rows, those past the last one zero. Of each tile: codes, at index(), behind those of
// each run corrections where kRunBytes has room for them; and by block and row the scale and what the sums of products
// start from.
struct Int8Rows {
  int64_t m;
  int64_t k;
  int8_t* codes;
  float* scales;
  int32_t* starts;

  static constexpr int64_t tiles(int64_t m) { return (m + kTileRows - 1) / kTileRows; }
  // Of one tile, with some slack.
  static constexpr int64_t tile_bytes(int64_t k) {
    return kTileRows * padded_row(k) / kRun * kRunBytes + kRowDepth * kPackSlack;
  }
  static constexpr int64_t scale_count(int64_t m, int64_t k) { return tiles(m) * kTileRows * int8_row_blocks(k); }

  // Of number i of a tile's row.
  static constexpr int64_t index(int64_t i, int64_t row) {
    return i / kRun * kTileRows * kRunBytes + (i % kRun / kRowDepth * kTileRows + row) * kRowDepth + i % kRowDepth;
  }
  const int8_t* tile_codes(int64_t tile) const { return codes + tile * tile_bytes(k); }
  int64_t tile_scales(int64_t tile) const { return tile * kTileRows * int8_row_blocks(k); }
};

// Takes room for m rows of k numbers.
Int8Rows take_int8_rows(int64_t m, int64_t k, Scratch& scratch);
void add_int8_rows(int64_t m, int64_t k, ScratchSize& size);

// The columns of x [m, k] whose largest magnitudes are the largest, ascending; k itself for those that there are not.
// `largest` [k] is overwritten.
void find_outliers(const float* x, int64_t m, int64_t k, float* largest, int64_t outliers[kOutliers]);

// Rounds x [m, k], the columns `outliers` (null: none) as 0. A row's block that holds NaN or an infinity gets the scale
// NaN.
void quantize_rows(const float* x, const int64_t* outliers, const Int8Rows& out);
// The rows of one tile of them, on this thread.
void quantize_tile(const float* x, const int64_t* outliers, const Int8Rows& out, int64_t tile);

// The same of numbers >= 0, none left out, each rounded up or down such that sums of many come out right: the many
// small ones beside a large one are not lost. `call` tells calls for the same rows apart, so that it is not always the
// same numbers that are rounded up.
void dither_tile(const float* x, const Int8Rows& out, int64_t tile, int64_t call);

}  // namespace mft::MFT_ISA
