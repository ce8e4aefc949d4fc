#pragma once

// Causal grouped-head attention, tiled with an online softmax: memory grows with T, never T x T.

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/attention/kv_cache.h"
#include "runtime/kernels/compute.h"
#include "runtime/platform/scratch.h"

namespace mft {

struct AttentionShape {
  int64_t t;
  int64_t heads;
  int64_t kv_heads;  // divides heads
  int64_t dim;       // of one head
  int64_t window;    // 0: none
  float scale;
  float softcap;       // scores lie in (-softcap, softcap); 0: no limit
  const float* sinks;  // [heads], scores of a key without a value that every query sees; null: none
};

namespace MFT_ISA {

// q, o [T, heads * dim], k, v [T, kv_heads * dim] (rotated already), lse [heads, T]:
//   s_ij = scale q_i . k_j, lse_i = ln (e^sink + sum_j e^s_ij), o_i = sum_j e^(s_ij - lse_i) v_j
// With a softcap c, s_ij = c tanh(scale q_i . k_j / c).
// Several rows may be packed: query i sees the keys j with i - positions[i] <= j <= i, and
// j > i - window if there is a window.
void attention_forward(Compute compute, const AttentionShape& shape, const float* q, const float* k, const float* v,
                       const int64_t* positions, float* o, float* lse, Scratch scratch);

// Gradients for dout [T, heads * dim], scores recomputed from lse; dk and dv are summed over the
// query heads that share them. With p_ij = e^(s_ij - lse_i):
//   dv_j = sum_i p_ij dout_i, ds_ij = p_ij (dout_i . v_j - dout_i . o_i)
//   dq_i = scale sum_j ds_ij k_j, dk_j = scale sum_i ds_ij q_i
// With a softcap c, ds_ij is also multiplied by 1 - (s_ij / c)^2. Sinks are in lse and change nothing else.
void attention_backward(Compute compute, const AttentionShape& shape, const float* dout, const float* q, const float* k,
                        const float* v, const float* o, const float* lse, const int64_t* positions, float* dq,
                        float* dk, float* dv, Scratch scratch);

// Generation, one sequence: shape.t new tokens after `past` ones. The cache has the keys and values of all of them, the
// new ones too.
void attention_decode(const AttentionShape& shape, const float* q, const KvCache& cache, int64_t past, float* o,
                      Scratch scratch);

// Of all three, for shapes of at most this t.
size_t attention_scratch_bytes(Compute compute, const AttentionShape& shape);

}  // namespace MFT_ISA
}  // namespace mft
