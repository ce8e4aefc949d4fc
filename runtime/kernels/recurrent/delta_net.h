#pragma once

// The gated delta rule (arXiv 2412.06464) over packed rows, with the short convolution before it, in chunks: matrix
// products and a triangular solve instead of a loop over tokens. mobile_ft/model/ops/delta_net.py has the formula token
// by token.

#include <cstddef>
#include <cstdint>

#include "runtime/platform/scratch.h"

namespace mft {

constexpr int64_t kMostDeltaTaps = 16;

struct DeltaNetShape {
  int64_t t;
  int64_t key_heads;
  int64_t key_dim;    // of a head of queries or keys
  int64_t heads;      // of values; a multiple of key_heads
  int64_t value_dim;  // of a head of values
  int64_t taps;       // at most kMostDeltaTaps
  float beta_scale;

  int64_t keys() const { return key_heads * key_dim; }
  int64_t values() const { return heads * value_dim; }
  int64_t channels() const { return 2 * keys() + values(); }
};

struct DeltaNetInput {
  const float* qkv;          // [T, channels]
  const float* b;            // [T, heads], beta = beta_scale sigmoid(b)
  const float* a;            // [T, heads], the decay's logarithm is -e^a_log softplus(a + dt_bias)
  const float* taps;         // [taps, channels], oldest token first
  const float* a_log;        // [heads]
  const float* dt_bias;      // [heads]
  const int64_t* positions;  // [T]; rows start at 0
};

namespace MFT_ISA {

// o [T, values].
void delta_net(const DeltaNetShape& shape, const DeltaNetInput& in, float* o, Scratch scratch);

// Gradients for dout [T, values]. States are computed again: each thread keeps those at the starts of one key head's
// chunks.
void delta_net_backward(const DeltaNetShape& shape, const DeltaNetInput& in, const float* dout, float* dqkv, float* db,
                        float* da, Scratch scratch);

// Generation: `state` has qkv [taps - 1, channels] of the tokens before, then H [heads, key_dim, value_dim]; `next`,
// which is not `state`, is that behind these tokens. A position of 0 starts from a state of zeros.
void delta_net_decode(const DeltaNetShape& shape, const DeltaNetInput& in, const float* state, float* o, float* next,
                      Scratch scratch);

// Of all three, for at most this t.
size_t delta_net_scratch_bytes(const DeltaNetShape& shape);

}  // namespace MFT_ISA
}  // namespace mft
