#pragma once

#include <cstddef>
#include <cstdint>

namespace mft {

// Floats kept in 8 bits: in blocks of 128, each number a signed code times the scale of its block, max |x| / 127.
struct Int8Block {
  static constexpr int64_t kSize = 128;
  float scale;
  int8_t codes[kSize];
};

constexpr int64_t int8_blocks(int64_t n) { return (n + Int8Block::kSize - 1) / Int8Block::kSize; }

namespace MFT_ISA {

// Rounds n floats to the nearest code; those of a last block that is not full are 0. A block that holds NaN or an
// infinity comes back as NaN.
void to_int8(const float* x, int64_t n, Int8Block* out);
void from_int8(const Int8Block* x, int64_t n, float* out);

}  // namespace MFT_ISA
}  // namespace mft
