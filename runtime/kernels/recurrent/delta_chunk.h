#pragma once

// One chunk of one key head of a delta net, with the value heads that share the key head. Within a chunk that starts
// from the state H [dk, dv], with c_i the sum of the logarithms of the decays up to token i, and G_ij = e^(c_i - c_j):
//
//   (I + L) U = diag(beta) W,  L_ij = beta_i G_ij k_i . k_j for j < i,  W = V - diag(e^c) K H
//   O = diag(e^c) Q H + P U,   P_ij = G_ij q_i . k_j for j <= i
//   H' = e^c_last H + sum over i of e^(c_last - c_i) k_i u_i^T

#include <cstdint>

#include "runtime/kernels/recurrent/chunk_product.h"
#include "runtime/kernels/recurrent/decay.h"
#include "runtime/kernels/recurrent/delta_net.h"

namespace mft::MFT_ISA {

// Larger chunks need more products within a chunk, smaller ones more with the state.
constexpr int64_t kDeltaChunk = 48;

// The tokens [begin, end) of a chunk, of a row that starts at `row`.
struct ChunkTokens {
  int64_t row;
  int64_t begin;
  int64_t end;
  int64_t size() const { return end - begin; }
};

// Buffers of one thread for one chunk. Matrices of a chunk have kDeltaChunk rows; those between tokens, kDeltaChunk
// columns.
struct DeltaBuffers : ProductBuffers {
  float* before;    // [chunk + taps - 1, width], inputs of silu; in the backward, their gradients, with later tokens
  float* u;         // [chunk, width], q, k (of unit length, q times 1 / sqrt(dk)) and v
  float* lengths;   // [2, chunk], 1 / length of q and k
  float* qk;        // [chunk, chunk], q_i . k_j
  float* kk;        // [chunk, chunk], k_i . k_j
  float* gates;     // [6, chunk]: beta, c, e^c, e^(c_last - c), one for sums, and the rest of c
  float* p;         // [chunk, chunk]
  float* l;         // [chunk, chunk]
  float* products;  // [2 chunk, largest dim], K H and Q H; in the backward, gradients

  DecaySums sums() const { return {gates + kDeltaChunk, gates + 5 * kDeltaChunk}; }
  static int64_t floats(const DeltaNetShape& s);
  DeltaBuffers(float* base, const DeltaNetShape& s);

  // The buffers that `load_chunk` fills, at `base`; the others stay.
  static int64_t loaded_floats(const DeltaNetShape& s);
  void set_loaded(float* base, const DeltaNetShape& s);
};

// Columns of a token in `u`: q, k, and the values of the heads that share the key head.
inline int64_t delta_group(const DeltaNetShape& s) { return s.heads / s.key_heads; }
inline int64_t delta_width(const DeltaNetShape& s) { return 2 * s.key_dim + delta_group(s) * s.value_dim; }

// The first channel of the parts of a token in `u`, and their widths.
struct DeltaParts {
  int64_t from[3];
  int64_t width[3];
  DeltaParts(const DeltaNetShape& s, int64_t key_head)
      : from{key_head * s.key_dim, s.keys() + key_head * s.key_dim,
             2 * s.keys() + key_head * delta_group(s) * s.value_dim},
        width{s.key_dim, s.key_dim, delta_group(s) * s.value_dim} {}
};

// rows[i] = sum over k of taps[k] rows[i + k], in `lanes` columns of n rows that are `width` apart.
inline void convolve_column(const Vec* taps, int64_t count, int64_t n, int64_t width, int64_t lanes, float* rows) {
  for (int64_t i = 0; i < n; ++i, rows += width) {
    Vec sum = taps[0] * load_part(rows, lanes);
    for (int64_t k = 1; k < count; ++k) sum += taps[k] * load_part(rows + k * width, lanes);
    store_part(rows, sum, lanes);
  }
}

// Computes u, lengths, qk and kk of a chunk. `earlier` holds the tokens before the row (null: none).
void load_chunk(const DeltaNetShape& s, const DeltaNetInput& in, const ChunkTokens& tokens, int64_t key_head,
                const float* earlier, const DeltaBuffers& buffers);

// Computes gates, p and l of a value head.
void load_gates(const DeltaNetShape& s, const DeltaNetInput& in, const ChunkTokens& tokens, int64_t head,
                const DeltaBuffers& buffers);

// Computes U from the state [dk, dv] (null: zeros), to `u` [chunk, dv]; W to `w` [chunk, dv] and, of a state that is
// not null, Q H to `qh` [chunk, dv] if they are not null. v points to the head's first value in the first token of `u`.
void solve_chunk(const DeltaNetShape& s, int64_t tokens, const float* v, const float* state, float* u, float* w,
                 float* qh, const DeltaBuffers& buffers);

// Sets `next` to the state behind the chunk. `state` may be `next`, or null (zeros).
void advance_state(const DeltaNetShape& s, int64_t tokens, const float* u, const float* state, float* next,
                   const DeltaBuffers& buffers);

// x <- (I + L)^-1 x, or (I + L)^-T x; x [tokens, n], ldx apart. Only the part of L below the diagonal is read.
void solve_lower(const float* l, int64_t tokens, float* x, int64_t n, int64_t ldx, const DeltaBuffers& buffers);
void solve_transposed(const float* l, int64_t tokens, float* x, int64_t n, int64_t ldx, const DeltaBuffers& buffers);

}  // namespace mft::MFT_ISA
