#pragma once

// Attention of a few new tokens, as a model that answers has them one by one: without the packing that pays with blocks
// of queries.

#include <cstdint>

#include "runtime/kernels/attention/attention.h"

namespace mft::MFT_ISA {

constexpr int64_t kFewQueries = 8;  // the most that are computed like this

// `attention_decode` for at most kFewQueries tokens. A token's result has the same bits beside any other tokens.
void attend_few(const AttentionShape& shape, const float* q, const KvCache& cache, int64_t past, float* o,
                Scratch scratch);
size_t attend_few_scratch_bytes(const AttentionShape& shape);

}  // namespace mft::MFT_ISA
