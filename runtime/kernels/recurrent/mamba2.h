#pragma once

// Mamba-2's state space layer (arXiv 2405.21060) over packed rows, with the short convolution before it, in chunks:
// matrix products instead of a loop over tokens. mobile_ft/model/ops/mamba2.py has the formula token by token.

#include <cstddef>
#include <cstdint>

#include "runtime/platform/scratch.h"

namespace mft {

constexpr int64_t kMostMamba2Taps = 16;

struct Mamba2Shape {
  int64_t t;
  int64_t groups;  // of heads that share B and C
  int64_t state;   // numbers of B and C of a group
  int64_t heads;   // a multiple of groups
  int64_t dim;     // of a head
  int64_t taps;    // at most kMostMamba2Taps

  int64_t values() const { return heads * dim; }
  int64_t channels() const { return values() + 2 * groups * state; }
};

struct Mamba2Input {
  const float* xbc;          // [T, channels]: x of all heads, B of all groups, C of all groups
  const float* dt;           // [T, heads], the step is softplus(dt + dt_bias)
  const float* taps;         // [taps, channels], oldest token first
  const float* conv_bias;    // [channels]
  const float* a_log;        // [heads], the decay's logarithm is -e^a_log times the step
  const float* dt_bias;      // [heads]
  const float* skip;         // [heads], D in the paper
  const int64_t* positions;  // [T]; rows start at 0
};

namespace MFT_ISA {

// y [T, values].
void mamba2(const Mamba2Shape& shape, const Mamba2Input& in, float* y, Scratch scratch);

// Gradients for dy [T, values]. States are computed again: each part of a group's heads keeps those at the starts of
// one head's chunks.
void mamba2_backward(const Mamba2Shape& shape, const Mamba2Input& in, const float* dy, float* dxbc, float* ddt,
                     Scratch scratch);

// Generation: `state` has xbc [taps - 1, channels] of the tokens before, then H [heads, state, dim]; `next`, which is
// not `state`, is that behind these tokens. A position of 0 starts from a state of zeros.
void mamba2_decode(const Mamba2Shape& shape, const Mamba2Input& in, const float* state, float* y, float* next,
                   Scratch scratch);

// Of all three, for at most this t.
size_t mamba2_scratch_bytes(const Mamba2Shape& shape);

}  // namespace MFT_ISA
}  // namespace mft
