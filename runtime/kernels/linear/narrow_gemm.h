#pragma once

// float32 products with few columns, as LoRA's have.

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/linear/gemm.h"

namespace mft::MFT_ISA {

// C [m, n] = A U for few columns: A [m, k], row by row, is read where it lies, U is packed first unless its rows are
// those of panels. The result does not depend on the number of threads.
void narrow_gemm(int64_t m, int64_t n, int64_t k, const float* a, Mat u, float* c, Scratch scratch);

size_t narrow_gemm_scratch_bytes(int64_t n, int64_t k);

}  // namespace mft::MFT_ISA
