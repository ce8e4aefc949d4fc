#pragma once

// Blocks of attention's factors in 8 bits, and the products of two of them. A product C = A B sums over k: the head's
// channels, or the tokens of a block. Each row of A and each column of B has a scale, per kInt8Block of k.

#include <algorithm>

#include "runtime/kernels/attention/attention_tile.h"
#include "runtime/kernels/linear/int8_factors.h"
#include "runtime/kernels/linear/int8_gemm.h"

namespace mft::MFT_ISA {

static_assert(kBlock <= kInt8Block && kBlock <= kMostColumns);

// `count` factors A [m, k] of at most kBlock rows.
class LeftCodes {
 public:
  LeftCodes(int64_t count, int64_t k, Scratch& scratch)
      : k_(k), data_(scratch.take_bytes(static_cast<size_t>(count * bytes(k)))) {}
  static void add(int64_t count, int64_t k, ScratchSize& size) {
    size.take_bytes(static_cast<size_t>(count * bytes(k)));
  }
  static int64_t bytes(int64_t k) {
    return round_up(code_bytes(k) + 8 * Int8Rows::scale_count(kBlock, k), int64_t{kScratchAlign});
  }

  Int8Rows at(int64_t i, int64_t m) const {
    std::byte* base = data_ + i * bytes(k_);
    float* scales = reinterpret_cast<float*>(base + code_bytes(k_));
    return {m, k_, reinterpret_cast<int8_t*>(base), scales,
            reinterpret_cast<int32_t*>(scales + Int8Rows::scale_count(kBlock, k_))};
  }

 private:
  static int64_t code_bytes(int64_t k) {
    return round_up(Int8Rows::tiles(kBlock) * Int8Rows::tile_bytes(k), int64_t{sizeof(float)});
  }
  int64_t k_;
  std::byte* data_;
};

// One factor B [k, n].
struct Right {
  int64_t k;
  uint8_t* codes;
  float* scales;

  // Of the columns from n0 on, a multiple of kTileCols.
  Int8Panel panel(int64_t n0) const { return {codes + n0 * padded_row(k), scales + n0 * int8_row_blocks(k)}; }
};

// `count` factors B [k, n].
class RightCodes {
 public:
  RightCodes(int64_t count, int64_t k, int64_t n, Scratch& scratch)
      : k_(k), n_(n), data_(scratch.take_bytes(static_cast<size_t>(count * bytes(k, n)))) {}
  static void add(int64_t count, int64_t k, int64_t n, ScratchSize& size) {
    size.take_bytes(static_cast<size_t>(count * bytes(k, n)));
  }
  static int64_t bytes(int64_t k, int64_t n) {
    return round_up(code_bytes(k, n) + 4 * round_up(n, kTileCols) * int8_row_blocks(k), int64_t{kScratchAlign});
  }

  Right at(int64_t i) const {
    std::byte* base = data_ + i * bytes(k_, n_);
    return {k_, reinterpret_cast<uint8_t*>(base), reinterpret_cast<float*>(base + code_bytes(k_, n_))};
  }

 private:
  static int64_t code_bytes(int64_t k, int64_t n) { return round_up(n, kTileCols) * padded_row(k); }
  int64_t k_, n_;
  std::byte* data_;
};

// Floats that the two functions below overwrite, for factors whose k is `k`.
constexpr int64_t room_floats(int64_t k) { return panel_floats(k, kTileCols) + packed_floats(kTileRows, k); }

// A = alpha a, of which column i is multiplied by channels[i] (null: 1).
inline void encode_left(Mat a, float alpha, const float* channels, float* room, const Int8Rows& out) {
  if (a.row == 1) encode_tiles(a.p, a.col, out.m, channels, out, 0);
  for (int64_t m0 = 0, tile = 0; m0 < out.m; m0 += kTileRows, ++tile) {
    if (a.row != 1) {
      const int64_t rows = std::min(kTileRows, out.m - m0);
      const float* each[kTileRows];
      for (int64_t r = 0; r < kTileRows; ++r) each[r] = r < rows ? a.p + (m0 + r) * a.row : nullptr;
      pack_tile(each, a.col, out.k, 1.f, room);
      encode_tiles(room, kTileRows, rows, channels, out, tile);
    }
    float* scales = out.scales + out.tile_scales(tile);
    for (int64_t i = 0; alpha != 1.f && i < kTileRows * int8_row_blocks(out.k); ++i) scales[i] *= alpha;
  }
}

// The first k rows of B [out.k, n] = alpha b, of which row i is multiplied by channels[i] (null: 1).
inline void encode_right(Mat b, int64_t k, int64_t n, float alpha, const float* channels, float* room, Right out) {
  for (int64_t n0 = 0; n0 < n; n0 += kTileCols) {
    const int64_t nr = std::min(kTileCols, n - n0);
    const Int8Panel panel = out.panel(n0);
    const float* first = b.p + n0 * b.col;
    if (b.col == 1) {
      encode_panel(first, b.row, k, nr, channels, panel);
    } else {
      pack_panels({first, b.row, b.col}, k, nr, room);
      encode_panel(room, kTileCols, k, nr, channels, panel);
    }
    for (int64_t i = 0; i < kTileCols * int8_row_blocks(k); ++i) panel.scales[i] *= alpha;
  }
}

// scores [kTileRows, kBlock] = A B where it is seen, of a strip of kTileRows rows of A. `sums` [kTileRows][kTileCols]
// are overwritten.
inline void multiply_seen(const Int8Rows& a, int64_t strip, const Right& b, const Seen& seen, float* sums,
                          float* scores) {
  const Range& range = seen.of_queries[strip];
  for (int64_t n0 = range.begin / kTileCols * kTileCols; n0 < range.end; n0 += kTileCols) {
    multiply_int8_panel(a, strip, 0, b.k, b.panel(n0), AddTo::kNothing, sums, scores + n0, kBlock,
                        std::min(kTileCols, seen.keys - n0));
  }
}

// C [kTileRows, n] (+)= A B, of a strip of rows of A that is zero outside its range of k.
inline void multiply_range(const Int8Rows& a, int64_t strip, const Right& b, const Range& range, int64_t n, float* sums,
                           float* c, int64_t ldc, bool accumulate) {
  const int64_t rows = std::min(kTileRows, a.m - strip * kTileRows);
  if (range.begin >= range.end) {
    for (int64_t r = 0; r < rows && !accumulate; ++r) std::fill_n(c + r * ldc, n, 0.f);
    return;
  }
  const int64_t begin = range.begin / kRowStep * kRowStep, count = range.end - begin;
  for (int64_t n0 = 0; n0 < n; n0 += kTileCols) {
    Int8Panel panel = b.panel(n0);
    panel.codes += begin * kTileCols;
    multiply_int8_panel(a, strip, begin, count, panel, accumulate ? AddTo::kC : AddTo::kNothing, sums, c + n0, ldc,
                        std::min(kTileCols, n - n0));
  }
}

}  // namespace mft::MFT_ISA
