#pragma once

// Products of many rows with a packed weight in 15 bits, as a model that answers has them while it reads a prompt.
// Without LoRA, a row gets the same bits as from matvec.h, which computes few rows.

#include <cstddef>
#include <cstdint>

#include "runtime/formats/format.h"
#include "runtime/kernels/linear/int15_rows.h"
#include "runtime/kernels/linear/linear.h"

namespace mft::MFT_ISA {

// Rows that a panel's bytes are used for: as many as take no more memory than a product in 8 bits of kRowBlock rows.
constexpr int64_t kInt15RowBlock = 96;

// Whether one instruction sums four products of bytes, and the weight has bytes. Else float32 is as fast.
bool int15_is_faster(const PackedWeight& w);

// y [m, N] = x W^T, plus scale h B^T where lora is not null; m at most kInt15RowBlock. The result does not depend on
// the number of threads.
void int15_gemm(const Int15Rows& x, const PackedWeight& w, const Lora* lora, const float* h, float* y, Scratch scratch);

size_t int15_gemm_scratch_bytes(int64_t rank);

}  // namespace mft::MFT_ISA
