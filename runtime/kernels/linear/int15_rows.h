#pragma once

// Activations in 15 bits, as answers compute with them: whole numbers with a scale for every kInt15Block of a row, in
// two parts of 8 bits, which products of bytes multiply.

#include <cstddef>
#include <cstdint>

#include "runtime/platform/scratch.h"

namespace mft::MFT_ISA {

constexpr int64_t kInt15Block = 32;  // numbers of a row that share a scale

// x [m, k] as scale (kSecondPart first + second), with both parts from -127 to 127, and the largest magnitude of a
// block 127 in the first.
struct Int15Rows {
  static constexpr int32_t kSecondPart = 254;

  int64_t m, k;
  const float* x;
  int8_t* codes;  // [m, 2, padded], 0 behind the row: the first parts, then the second ones
  float* scales;  // [m, blocks]
  int32_t* sums;  // [m, 2, 2 blocks], of each half of a block: of the first parts, then of the second ones

  static int64_t blocks(int64_t k) { return (k + kInt15Block - 1) / kInt15Block; }
  static int64_t padded(int64_t k) { return blocks(k) * kInt15Block; }
  static void add(int64_t m, int64_t k, ScratchSize& size);
  Int15Rows(const float* x, int64_t m, int64_t k, Scratch& scratch);

  // The sum of a part (0 or 1) of this row's `columns` numbers from number i on: half a block or a whole one.
  int32_t part_sum(int64_t row, int64_t part, int64_t i, int64_t columns) const {
    constexpr int64_t kHalf = kInt15Block / 2;
    const int32_t* half = sums + (2 * row + part) * 2 * blocks(k) + i / kHalf;
    return half[0] + (columns > kHalf ? half[1] : 0);
  }

  // A block that holds NaN or an infinity gets the scale NaN.
  void encode();
};

}  // namespace mft::MFT_ISA
