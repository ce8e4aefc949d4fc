#pragma once

// Attention with products in 8 bits, forward and backward; else as attention.h describes. Softmax and what lies between
// the products stay in float32.

#include "runtime/kernels/attention/attention.h"
#include "runtime/kernels/linear/int8_vec.h"

namespace mft::MFT_ISA {

// Without products of bytes in one instruction, weights have 7 bits only and little time would be saved.
inline bool attends_in_int8(Compute compute) { return compute == Compute::kInt8 && kDotProducts; }

void int8_attention_forward(const AttentionShape& shape, const float* q, const float* k, const float* v,
                            const int64_t* positions, float* o, float* lse, Scratch scratch);
void int8_attention_backward(const AttentionShape& shape, const float* dout, const float* q, const float* k,
                             const float* v, const float* o, const float* lse, const int64_t* positions, float* dq,
                             float* dk, float* dv, Scratch scratch);
// Of both.
size_t int8_attention_scratch_bytes(const AttentionShape& shape);

}  // namespace mft::MFT_ISA
