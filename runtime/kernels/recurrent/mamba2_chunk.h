#pragma once

// One head of a Mamba-2 layer, chunk by chunk. Within a chunk that starts from the state H [state, dim], with c_i the
// sum of the logarithms of the decays up to token i, G_ij = e^(c_i - c_j), and U the head's inputs times their steps:
//
//   Y = diag(e^c) C H + P U + skip X,   P_ij = G_ij C_i . B_j for j <= i
//   H' = e^c_last H + sum over i of e^(c_last - c_i) B_i U_i^T
//
// Heads of a group share B and C. They are items for the threads in a fixed number of parts, whatever the number of
// threads, so that sums over a part's heads have one order.

#include <cstdint>

#include "runtime/kernels/recurrent/chunk_product.h"
#include "runtime/kernels/recurrent/decay.h"
#include "runtime/kernels/recurrent/mamba2.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {

constexpr int64_t kMambaChunk = 48;
constexpr int64_t kMambaParts = 4;

// A row [begin, end) of the packed sequence.
struct RowTokens {
  int64_t begin;
  int64_t end;
  int64_t size() const { return end - begin; }
  int64_t chunks() const { return (size() + kMambaChunk - 1) / kMambaChunk; }
};

// Calls body(row) for every row. A row starts where a position is 0, and at token 0.
template <typename Body>
void each_row(const Mamba2Shape& s, const Mamba2Input& in, const Body& body) {
  for (int64_t begin = 0; begin < s.t;) {
    int64_t end = begin + 1;
    while (end < s.t && in.positions[end] > 0) ++end;
    body(RowTokens{begin, end});
    begin = end;
  }
}

// What the heads of a group share, for all tokens of a row.
struct MambaGroup {
  float* before;  // [tokens, 2 state], inputs of silu: B, then C
  float* bc;      // [tokens, 2 state]
  float* cb;      // [chunks, chunk, chunk], C_i . B_j of each chunk

  static int64_t floats(const Mamba2Shape& s);
  MambaGroup(float* base, const Mamba2Shape& s);
};

// Buffers of one part for a chunk. Matrices of a chunk have kMambaChunk rows.
struct MambaBuffers : ProductBuffers {
  float* before;    // [chunk, dim], inputs of silu
  float* x;         // [chunk, dim]
  float* u;         // [chunk, dim], x times the step
  float* gates;     // [5, chunk]: step, c, e^c, e^(c_last - c), the rest of c
  float* p;         // [chunk, chunk]
  float* weighted;  // [chunk, largest dim]

  DecaySums sums() const { return {gates + kMambaChunk, gates + 4 * kMambaChunk}; }

  static int64_t floats(const Mamba2Shape& s);
  MambaBuffers(float* base, const Mamba2Shape& s);
};

// The convolution of `width` channels from `channel` on, with its bias, of the tokens [from, to) of a row: out [to -
// from, width]. `earlier` [taps - 1, channels] has the tokens before the row; null: zeros.
void convolve_tokens(const Mamba2Shape& s, const Mamba2Input& in, const RowTokens& row, int64_t from, int64_t to,
                     int64_t channel, int64_t width, const float* earlier, float* out);

// Computes what the heads of a group share, in all threads.
void load_group(const Mamba2Shape& s, const Mamba2Input& in, const RowTokens& row, int64_t group, const float* earlier,
                const MambaGroup& shared, float* products);
// Floats of `products` of `load_group`.
int64_t load_group_floats(const Mamba2Shape& s);

// Computes x, u, gates and p of a head for the tokens [from, to), a chunk of the row.
void load_head(const Mamba2Shape& s, const Mamba2Input& in, const RowTokens& row, int64_t from, int64_t to,
               int64_t head, const float* earlier, const MambaGroup& shared, const MambaBuffers& buffers);

// Sets `next` [state, dim] to the state behind a chunk of n tokens. `state` may be `next`, or null (zeros). bc points
// to the chunk's first token.
void advance_mamba_state(const Mamba2Shape& s, int64_t n, const float* bc, const float* state, float* next,
                         const MambaBuffers& buffers);

inline int64_t heads_of_group(const Mamba2Shape& s) { return s.heads / s.groups; }
inline int64_t mamba_parts(const Mamba2Shape& s) { return std::min(kMambaParts, heads_of_group(s)); }

// Calls body(first head, behind the last head, part) for the parts of a group's heads, in several threads.
template <typename Body>
void each_part_of_group(const Mamba2Shape& s, int64_t group, const Body& body) {
  const int64_t parts = mamba_parts(s), heads = heads_of_group(s);
  parallel_for(parts, [&](int64_t part) {
    body(group * heads + part * heads / parts, group * heads + (part + 1) * heads / parts, part);
  });
}

size_t mamba2_backward_scratch_bytes(const Mamba2Shape& s);

}  // namespace mft::MFT_ISA
