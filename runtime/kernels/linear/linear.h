#pragma once

// A linear layer with packed weights and an optional LoRA branch. The weight is decoded tile by
// tile inside the product.

#include <cstddef>
#include <cstdint>

#include "runtime/formats/format.h"
#include "runtime/kernels/compute.h"
#include "runtime/platform/scratch.h"

namespace mft {

struct Lora {
  const float* a;  // [rank, K]
  const float* b;  // [N, rank]
  int64_t rank;
  float scale;
  // For products of a few rows in int8, the same in float16, or null: A [rank, K], and B in panels of kPanelRows rows,
  // each transposed, [rank, rows of the panel].
  const uint16_t* half_a = nullptr;
  const uint16_t* half_b = nullptr;
  float half_scale = 0;
};

// Up to so many rows are multiplied in 15 bits in int8, too (matvec.h).
constexpr int64_t kFewRows = 8;

namespace MFT_ISA {

// y [M, N] = x W^T + scale (x A^T) B^T, x [M, K]. lora may be null. Returns whether it left the codes of x at the
// beginning of the scratch. `same_x` says that it did so in the last use of the scratch, with the same `compute` and x.
bool linear_forward(Compute compute, const float* x, int64_t m, const PackedWeight& w, const Lora* lora, bool same_x,
                    float* y, Scratch scratch);

// Gradients for dy [M, N]; x A^T is computed again rather than kept (MeSP, arXiv 2602.13069):
//   dx [M, K]    = dy W + scale (dy B) A      may be null
//   ga [rank, K] = scale (dy B)^T x           null when lora is null, or A is not trained
//   gb [N, rank] = scale dy^T (x A^T)         null when lora is null
void linear_backward(Compute compute, const float* dy, const float* x, int64_t m, const PackedWeight& w,
                     const Lora* lora, float* dx, float* ga, float* gb, Scratch scratch);

// Of both directions, for at most max_m rows; rank 0 without LoRA.
size_t linear_scratch_bytes(Compute compute, int64_t max_m, int64_t rows, int64_t cols, int64_t rank);

}  // namespace MFT_ISA
}  // namespace mft
