#pragma once

// Attention of a few new tokens, as a model that answers has them one by one: without the packing that pays with blocks
// of queries.

#include <cstdint>

#include "runtime/kernels/attention/attention.h"

namespace mft::MFT_ISA {

constexpr int64_t kFewQueries = 8;  // the most that are computed like this

// Keys and values of one span of absolute places [begin, end), row 0 of k and v being `begin`.
struct KeySpan {
  const float* k;
  const float* v;
  int64_t begin;
  int64_t end;
};

// `attention_decode` for at most kFewQueries tokens, whose keys are in the spans, in order.
void attend_few(const AttentionShape& shape, const float* q, const KeySpan* spans, int count, int64_t past, float* o);

}  // namespace mft::MFT_ISA
