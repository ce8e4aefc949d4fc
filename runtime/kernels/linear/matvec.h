#pragma once

// Products of a few rows with a packed weight, as a model that answers has them token by token: limited by reading the
// weight once, where the tiles of int8_gemm.h would decode it for rows that are not there.
//
// Codes of the weight are multiplied as they are, in 8 bits (fractions: 14), by rows of x in 15 bits (int15_rows.h):
// their second part costs little where reading the weight is what takes the time. Weights of floats are multiplied in
// float32.

#include <cstddef>
#include <cstdint>

#include "runtime/formats/format.h"
#include "runtime/kernels/linear/int15_rows.h"
#include "runtime/kernels/linear/linear.h"

namespace mft::MFT_ISA {

constexpr int64_t kMatvecRows = kFewRows;  // the most that are multiplied like this

// h [m, rank] = x A^T.
void matvec_low_rank(const Int15Rows& x, const Lora& lora, float* h);

// y [m, N] = x W^T, plus scale h B^T where lora is not null; m at most kMatvecRows.
void matvec(const Int15Rows& x, const PackedWeight& w, const Lora* lora, const float* h, float* y);

}  // namespace mft::MFT_ISA
