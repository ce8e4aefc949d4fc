#pragma once

// Products of a few rows with a packed weight, as a model that answers has them token by token: limited by reading the
// weight once, where the tiles of int8_gemm.h would decode it for rows that are not there.
//
// Codes of the weight are multiplied as they are, in 8 bits (fractions: 14), by rows of x as whole numbers with a scale
// for every kMatvecBlock of them. These have two parts of 8 bits: the second one costs little where reading the weight
// is what takes the time. Weights of floats are multiplied in float32.

#include <cstddef>
#include <cstdint>

#include "runtime/formats/format.h"
#include "runtime/kernels/linear/linear.h"
#include "runtime/platform/scratch.h"

namespace mft::MFT_ISA {

constexpr int64_t kMatvecRows = kFewRows;  // the most that are multiplied like this
constexpr int64_t kMatvecBlock = 32;       // numbers of a row that share a scale

// x [m, k] as scale (kSecondPart first + second), with both parts from -127 to 127, and the largest magnitude of a
// block 127 in the first.
struct MatvecInput {
  static constexpr int32_t kSecondPart = 254;

  int64_t m, k;
  const float* x;
  int8_t* codes;  // [m, 2, padded], 0 behind the row: the first parts, then the second ones
  float* scales;  // [m, blocks]
  int32_t* sums;  // [m, 2 blocks], of kSecondPart first + second in each half of a block

  static int64_t blocks(int64_t k) { return (k + kMatvecBlock - 1) / kMatvecBlock; }
  static int64_t padded(int64_t k) { return blocks(k) * kMatvecBlock; }
  static void add(int64_t m, int64_t k, ScratchSize& size);
  MatvecInput(const float* x, int64_t m, int64_t k, Scratch& scratch);

  // A block that holds NaN or an infinity gets the scale NaN.
  void encode();
};

// h [m, rank] = x A^T.
void matvec_low_rank(const MatvecInput& x, const Lora& lora, float* h);

// y [m, N] = x W^T, plus scale h B^T where lora is not null; m at most kMatvecRows.
void matvec(const MatvecInput& x, const PackedWeight& w, const Lora* lora, const float* h, float* y);

}  // namespace mft::MFT_ISA
