#pragma once

// The output head and its loss in one pass over the vocabulary; logits exist a tile at a time.

#include <cstddef>
#include <cstdint>

#include "runtime/formats/format.h"
#include "runtime/kernels/linear/linear.h"
#include "runtime/platform/scratch.h"

namespace mft::MFT_ISA {

// x [M, K], W [V, K], targets [M], each in [0, V) or -100 (no loss). Over the rows with a target:
//   losses_i [M] = ln sum_v e^(x_i . w_v) - x_i . w_target
//   dx_i [K]     = sum_v p_iv w_v - w_target, the gradient of losses_i; dx may be null
// The other rows get 0 of both. With a softcap c (0: none), logits are c tanh(x_i . w_v / c), and the term of v in dx
// has the factor 1 - (logit / c)^2. int8: both products with the weight are, the exponentials are not. dx is attention
// of x over the vocabulary: a running maximum and a rescaled sum. The vocabulary is split in as many ranges as there
// are threads, so the last bits depend on their number.
void linear_cross_entropy(Compute compute, const float* x, int64_t m, const PackedWeight& w, const int64_t* targets,
                          float softcap, float* losses, float* dx, Scratch scratch);

// Does not depend on the vocabulary (`rows`).
size_t linear_cross_entropy_scratch_bytes(Compute compute, int64_t max_m, int64_t rows, int64_t cols);

}  // namespace mft::MFT_ISA
