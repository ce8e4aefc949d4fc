#include "runtime/kernels/recurrent/delta_net.h"

#include <algorithm>

#include "runtime/kernels/recurrent/delta_chunk.h"
#include "runtime/kernels/recurrent/delta_rows.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t C = kDeltaChunk;

// One key head over the tokens of a row. Without `earlier`, it starts from states of zeros, else from those in `states`
// [group, dk, dv]. With `keep`, it leaves the states behind the row there. u has [chunk, dv] floats.
void forward_row(const DeltaNetShape& s, const DeltaNetInput& in, int64_t begin, int64_t end, int64_t key_head,
                 const float* earlier, bool keep, float* states, float* u, float* o, const DeltaBuffers& buffers) {
  const int64_t dk = s.key_dim, dv = s.value_dim, group = delta_group(s);
  for (int64_t c = begin; c < end; c += C) {
    const ChunkTokens tokens{begin, c, std::min(end, c + C)};
    const int64_t n = tokens.size();
    load_chunk(s, in, tokens, key_head, earlier, buffers);
    for (int64_t member = 0; member < group; ++member) {
      const int64_t head = key_head * group + member;
      float* next = states + member * dk * dv;
      const float* state = c == begin && earlier == nullptr ? nullptr : next;
      load_gates(s, in, tokens, head, buffers);
      float* from_state = buffers.products + C * dv;
      solve_chunk(s, n, buffers.u + 2 * dk + member * dv, state, u, nullptr, from_state, buffers);
      float* out = o + c * s.values() + head * dv;
      const float* decay = buffers.gates + 2 * C;
      if (state != nullptr) {
        for (int64_t i = 0; i < n; ++i) {
          for (int64_t j = 0; j < dv; ++j) out[i * s.values() + j] = decay[i] * from_state[i * dv + j];
        }
      }
      chunk_product({buffers.p, C, 1}, n, n, {u, dv, 1}, dv, 1.f, out, s.values(), state != nullptr, buffers,
                    Part::kLowerA);
      if (keep || tokens.end < end) advance_state(s, n, u, state, next, buffers);
    }
  }
}

int64_t worker_floats(const DeltaNetShape& s) {
  return DeltaBuffers::floats(s) + C * s.value_dim + delta_group(s) * s.key_dim * s.value_dim;
}

}  // namespace

void delta_net(const DeltaNetShape& s, const DeltaNetInput& in, float* o, Scratch scratch) {
  delta_net_decode(s, in, nullptr, o, nullptr, scratch);
}

void delta_net_decode(const DeltaNetShape& s, const DeltaNetInput& in, const float* state, float* o, float* next,
                      Scratch scratch) {
  const int64_t kept = (s.taps - 1) * s.channels(), size = delta_group(s) * s.key_dim * s.value_dim;
  if (state != nullptr && in.positions[0] == 0) state = nullptr;  // starts anew
  float* base = scratch.take(thread_count() * worker_floats(s));
  each_delta_row(s, in, [&](int64_t begin, int64_t end, int64_t key_head, int64_t worker) {
    float* mine = base + worker * worker_floats(s);
    float* u = mine + DeltaBuffers::floats(s);
    float* states = u + C * s.value_dim;
    if (state != nullptr) std::copy_n(state + kept + key_head * size, size, states);
    forward_row(s, in, begin, end, key_head, state, next != nullptr, states, u, o, DeltaBuffers(mine, s));
    if (next != nullptr) std::copy_n(states, size, next + kept + key_head * size);
  });
  if (next == nullptr) return;
  for (int64_t i = 0; i < s.taps - 1; ++i) {
    const int64_t t = s.t - (s.taps - 1) + i;
    float* out = next + i * s.channels();
    if (t >= 0) {
      std::copy_n(in.qkv + t * s.channels(), s.channels(), out);
    } else if (state != nullptr) {
      std::copy_n(state + (s.taps - 1 + t) * s.channels(), s.channels(), out);
    } else {
      std::fill_n(out, s.channels(), 0.f);
    }
  }
}

size_t delta_net_scratch_bytes(const DeltaNetShape& s) {
  ScratchSize forward;
  forward.take(thread_count() * worker_floats(s));
  return std::max(forward.bytes, delta_net_backward_scratch_bytes(s));
}

}  // namespace mft::MFT_ISA
