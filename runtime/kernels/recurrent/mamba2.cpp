#include "runtime/kernels/recurrent/mamba2.h"

#include <algorithm>

#include "runtime/kernels/recurrent/mamba2_chunk.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t C = kMambaChunk;

// One head over a row. Without `earlier`, it starts from a state of zeros, else from that in `h`. With `keep`, it
// leaves the state behind the row there.
void forward_head(const Mamba2Shape& s, const Mamba2Input& in, const RowTokens& row, int64_t head, const float* earlier,
                  bool keep, const MambaGroup& shared, float* h, float* y, const MambaBuffers& buffers) {
  const int64_t d = s.dim, width = 2 * s.state;
  for (int64_t from = row.begin; from < row.end; from += C) {
    const int64_t to = std::min(row.end, from + C), n = to - from;
    load_head(s, in, row, from, to, head, earlier, shared, buffers);
    const float* bc = shared.bc + (from - row.begin) * width;
    const float* decay = buffers.gates + 2 * C;
    const float* state = from == row.begin && earlier == nullptr ? nullptr : h;
    float* out = y + from * s.values() + head * d;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < d; ++j) out[i * s.values() + j] = in.skip[head] * buffers.x[i * d + j];
    }
    if (state != nullptr) {
      float* from_state = buffers.weighted;
      chunk_product({bc + s.state, width, 1}, n, s.state, {state, d, 1}, d, 1.f, from_state, d, false, buffers);
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < d; ++j) out[i * s.values() + j] += decay[i] * from_state[i * d + j];
      }
    }
    chunk_product({buffers.p, C, 1}, n, n, {buffers.u, d, 1}, d, 1.f, out, s.values(), true, buffers, Part::kLowerA);
    if (keep || to < row.end) advance_mamba_state(s, n, bc, state, h, buffers);
  }
}

// Of each part: buffers and a state.
int64_t part_floats(const Mamba2Shape& s) { return MambaBuffers::floats(s) + s.state * s.dim; }

// The last taps - 1 tokens, with those of `state` before them.
void keep_tokens(const Mamba2Shape& s, const Mamba2Input& in, const float* state, float* next) {
  for (int64_t i = 0; i < s.taps - 1; ++i, next += s.channels()) {
    const int64_t t = s.t - (s.taps - 1) + i;
    if (t >= 0) {
      std::copy_n(in.xbc + t * s.channels(), s.channels(), next);
    } else if (state != nullptr) {
      std::copy_n(state + (s.taps - 1 + t) * s.channels(), s.channels(), next);
    } else {
      std::fill_n(next, s.channels(), 0.f);
    }
  }
}

}  // namespace

void mamba2(const Mamba2Shape& s, const Mamba2Input& in, float* y, Scratch scratch) {
  mamba2_decode(s, in, nullptr, y, nullptr, scratch);
}

void mamba2_decode(const Mamba2Shape& s, const Mamba2Input& in, const float* state, float* y, float* next,
                   Scratch scratch) {
  const int64_t kept = (s.taps - 1) * s.channels(), size = s.state * s.dim;
  if (state != nullptr && in.positions[0] == 0) state = nullptr;  // starts anew
  const MambaGroup shared(scratch.take(MambaGroup::floats(s)), s);
  float* products = scratch.take(load_group_floats(s));
  float* parts = scratch.take(mamba_parts(s) * part_floats(s));
  each_row(s, in, [&](const RowTokens& row) {
    for (int64_t group = 0; group < s.groups; ++group) {
      load_group(s, in, row, group, state, shared, products);
      each_part_of_group(s, group, [&](int64_t first, int64_t last, int64_t part) {
        float* mine = parts + part * part_floats(s);
        const MambaBuffers buffers(mine, s);
        float* h = mine + MambaBuffers::floats(s);
        for (int64_t head = first; head < last; ++head) {
          if (state != nullptr) std::copy_n(state + kept + head * size, size, h);
          forward_head(s, in, row, head, state, next != nullptr, shared, h, y, buffers);
          if (next != nullptr) std::copy_n(h, size, next + kept + head * size);
        }
      });
    }
  });
  if (next != nullptr) keep_tokens(s, in, state, next);
}

size_t mamba2_scratch_bytes(const Mamba2Shape& s) {
  ScratchSize forward;
  forward.take(MambaGroup::floats(s));
  forward.take(load_group_floats(s));
  forward.take(mamba_parts(s) * part_floats(s));
  return std::max(forward.bytes, mamba2_backward_scratch_bytes(s));
}

}  // namespace mft::MFT_ISA
