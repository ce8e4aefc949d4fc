#pragma once

#include <cstddef>
#include <cstdint>

namespace mft {

// Floats kept in 4 bits: in blocks of 32, each number (code - 8) times the scale of its block. The number that is
// largest in magnitude has code 0: -8 steps, of either sign.
struct Int4Block {
  static constexpr int64_t kSize = 32;
  uint16_t scale;            // bfloat16
  uint8_t codes[kSize / 2];  // byte j of 8, of either half of the block: of number j, and of number j + 8 above it
};

constexpr int64_t int4_blocks(int64_t n) { return (n + Int4Block::kSize - 1) / Int4Block::kSize; }

namespace MFT_ISA {

// Rounds n floats to the nearest code; those of a last block that is not full are 0. A block that holds NaN or an
// infinity comes back as NaN.
void to_int4(const float* x, int64_t n, Int4Block* out);
void from_int4(const Int4Block* x, int64_t n, float* out);

}  // namespace MFT_ISA
}  // namespace mft
