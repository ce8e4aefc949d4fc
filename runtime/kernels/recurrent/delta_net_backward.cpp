#include <algorithm>
#include <cmath>

#include "runtime/kernels/elementwise/activations.h"
#include "runtime/kernels/linear/row_sums.h"
#include "runtime/kernels/recurrent/delta_chunk.h"
#include "runtime/kernels/recurrent/delta_net.h"
#include "runtime/kernels/recurrent/delta_rows.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t C = kDeltaChunk;

int64_t chunks_of(int64_t tokens) { return ceil_div(tokens, C); }

// Buffers of one thread besides those of a chunk. A state is [dk, dv].
struct Work {
  float* states;     // [chunks - 1, group] states, at the start of each chunk but the row's first one
  float* u;          // [tokens, group, dv], as [chunk][member][token in the chunk][dv]
  float* w;          // the same
  float* dstates;    // [group] states, gradients of those at the end of the chunk
  float* du_inputs;  // [chunk, width], gradients of q, k and v
  float* du;         // [chunk, dv]
  float* dv;         // [chunk, dv]
  float* dp;         // [chunk, chunk]
  float* dl;         // [chunk, chunk]
  float* weighted;   // [2 chunk, largest dim]
  float* loaded;     // [chunks], what `load_chunk` computes
  DeltaBuffers buffers;

  DeltaBuffers buffers_of(const DeltaNetShape& s, int64_t chunk) const {
    DeltaBuffers result = buffers;
    result.set_loaded(loaded + chunk * DeltaBuffers::loaded_floats(s), s);
    return result;
  }

  // The state of a value head at the start of a chunk; null for zeros.
  float* state_of(const DeltaNetShape& s, int64_t chunk, int64_t member) const {
    const int64_t before = (chunk - 1) * delta_group(s) + member;
    return chunk == 0 ? nullptr : states + before * s.key_dim * s.value_dim;
  }

  static int64_t floats(const DeltaNetShape& s) {
    const int64_t chunks = chunks_of(s.t), group = delta_group(s), state = s.key_dim * s.value_dim;
    return chunks * group * state + 2 * chunks * C * group * s.value_dim + C * delta_width(s) + 2 * C * s.value_dim +
           2 * C * C + 2 * C * std::max(s.key_dim, s.value_dim) + DeltaBuffers::floats(s) +
           chunks * DeltaBuffers::loaded_floats(s);
  }

  Work(float* base, const DeltaNetShape& s) : buffers(base, s) {
    const int64_t chunks = chunks_of(s.t), group = delta_group(s), state = s.key_dim * s.value_dim;
    base += DeltaBuffers::floats(s);
    const auto take = [&](int64_t n) {
      float* taken = base;
      base += n;
      return taken;
    };
    states = take((chunks - 1) * group * state);
    dstates = take(group * state);
    u = take(chunks * C * group * s.value_dim);
    w = take(chunks * C * group * s.value_dim);
    du_inputs = take(C * delta_width(s));
    du = take(C * s.value_dim);
    dv = take(C * s.value_dim);
    dp = take(C * C);
    dl = take(C * C);
    weighted = take(2 * C * std::max(s.key_dim, s.value_dim));
    loaded = take(chunks * DeltaBuffers::loaded_floats(s));
  }
};

// Computes the states, U and W of all chunks of a row.
void compute_again(const DeltaNetShape& s, const DeltaNetInput& in, int64_t begin, int64_t end, int64_t key_head,
                   const Work& work) {
  const int64_t dk = s.key_dim, dv = s.value_dim, group = delta_group(s);
  for (int64_t c = begin; c < end; c += C) {
    const int64_t chunk = (c - begin) / C;
    const ChunkTokens tokens{begin, c, std::min(end, c + C)};
    const DeltaBuffers buffers = work.buffers_of(s, chunk);
    load_chunk(s, in, tokens, key_head, nullptr, buffers);
    for (int64_t member = 0; member < group; ++member) {
      load_gates(s, in, tokens, key_head * group + member, buffers);
      const float* state = work.state_of(s, chunk, member);
      const int64_t at = (chunk * group + member) * C * dv;
      solve_chunk(s, tokens.size(), buffers.u + 2 * dk + member * dv, state, work.u + at, work.w + at, nullptr,
                  buffers);
      if (tokens.end == end) continue;
      advance_state(s, tokens.size(), work.u + at, state, work.state_of(s, chunk + 1, member), buffers);
    }
  }
}

// y[i][j] = factor[i] x[i][j] for x, ldx apart, and y [rows, n].
void scale_rows(const float* x, int64_t ldx, const float* factor, int64_t rows, int64_t n, float* y) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < n; ++j) y[i * n + j] = factor[i] * x[i * ldx + j];
  }
}

// The gradients of one value head in one chunk, of a row that ends at `end`. `state` is that at the chunk's start
// (null: zeros). dout points to the head's first number in the chunk's first token. Adds those of q and k to
// work.du_inputs, sets that of v there, and moves the state's gradient to the chunk's start; that behind the row's last
// chunk is zero, and not read.
void backward_chunk(const DeltaNetShape& s, const DeltaNetInput& in, const ChunkTokens& tokens, int64_t end,
                    int64_t head, const float* state, const float* u, const float* w, const float* dout, float* dstate,
                    float* db, float* da, const Work& work, const DeltaBuffers& b) {
  const int64_t n = tokens.size(), dk = s.key_dim, dv = s.value_dim, width = delta_width(s), ldo = s.values();
  const float *beta = b.gates, *decay = b.gates + 2 * C, *rest = b.gates + 3 * C;
  float* dsum = b.gates + 4 * C;  // gradient of the summed logarithms of the decays
  float* dq = work.du_inputs;
  float* dkeys = work.du_inputs + dk;
  const Mat q{b.u, width, 1}, k{b.u + dk, width, 1};
  const bool last_chunk = tokens.end == end;
  std::fill_n(dsum, n, 0.f);

  // Of U: from the output, and from the state behind the chunk through the keys.
  chunk_product({b.p, 1, C}, n, n, {dout, ldo, 1}, dv, 1.f, work.du, dv, false, b, Part::kUpperA);
  if (!last_chunk) {
    scale_rows(b.u + dk, width, rest, n, dk, work.weighted);
    chunk_product({work.weighted, dk, 1}, n, dk, {dstate, dv, 1}, dv, 1.f, work.du, dv, true, b);

    // Of the state behind the chunk: through its keys and its decay.
    float* dweighted = b.products;  // [n, dk]
    chunk_product({u, dv, 1}, n, dv, {dstate, 1, dv}, dk, 1.f, dweighted, dk, false, b);
    float last = state == nullptr ? 0.f : decay[n - 1] * row_dot(state, dstate, dk * dv);
    for (int64_t i = 0; i < n; ++i) {
      const float* key = b.u + i * width + dk;
      const float through = rest[i] * row_dot(key, dweighted + i * dk, dk);
      last += through;
      dsum[i] -= through;
      for (int64_t j = 0; j < dk; ++j) dkeys[i * width + j] += rest[i] * dweighted[i * dk + j];
    }
    dsum[n - 1] += last;
  }

  // Of P, then of beta W through the triangular solve, and of L.
  chunk_product({dout, ldo, 1}, n, dv, {u, 1, dv}, n, 1.f, work.dp, C, false, b, Part::kLowerC);
  solve_transposed(b.l, n, work.du, dv, dv, b);  // now the gradient of beta W
  chunk_product({work.du, dv, 1}, n, dv, {u, 1, dv}, n, -1.f, work.dl, C, false, b, Part::kLowerC);

  for (int64_t i = 0; i < n; ++i) {
    float* dp = work.dp + i * C;
    float* dl = work.dl + i * C;
    float dbeta = row_dot(work.du + i * dv, w + i * dv, dv), of_row = 0.f;
    dl[i] = 0.f;
    each_register(i + 1, [&](int64_t j, int64_t lanes) {
      const Vec between = b.sums().between(i, j, lanes), of_p = load_part(dp + j, lanes),
                of_l = load_part(dl + j, lanes);
      const Vec of_decay = of_p * load_part(b.p + i * C + j, lanes) + of_l * load_part(b.l + i * C + j, lanes);
      of_row += sum(of_decay);
      dbeta += sum(of_l * between * load_part(b.kk + i * C + j, lanes));
      store_part(dsum + j, load_part(dsum + j, lanes) - of_decay, lanes);
      store_part(dp + j, of_p * between, lanes);              // now the gradient of q_i . k_j
      store_part(dl + j, of_l * (between * beta[i]), lanes);  // now the gradient of k_i . k_j
    });
    dsum[i] += of_row;
    std::fill(dp + i + 1, dp + n, 0.f);
    std::fill(dl + i + 1, dl + n, 0.f);
    // beta = beta_scale sigmoid(b)
    db[(tokens.begin + i) * s.heads + head] = dbeta * beta[i] * (1.f - beta[i] / s.beta_scale);
  }

  // Of V, and of K H, which was multiplied by -decay.
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < dv; ++j) {
      const float dw = beta[i] * work.du[i * dv + j];
      work.dv[i * dv + j] = dw;
      work.du[i * dv + j] = -decay[i] * dw;
    }
  }
  if (state != nullptr) {
    // dout times the decay is the gradient of Q H.
    float* dqh = work.weighted;
    scale_rows(dout, ldo, decay, n, dv, dqh);
    const Mat state_transposed{state, 1, dv};
    chunk_product({dqh, dv, 1}, n, dv, state_transposed, dk, 1.f, b.products, dk, false, b);
    pack({work.du, dv, 1}, n, dv, 1.f, b.packed);  // the panels of H are there
    multiply_packed(n, dv, dk, b.products + C * dk, dk, false, b, Part::kAll);
    for (int64_t i = 0; i < n; ++i) {
      const float *of_q = b.products + i * dk, *of_k = b.products + (C + i) * dk;
      dsum[i] += row_dot(b.u + i * width, of_q, dk) + row_dot(b.u + i * width + dk, of_k, dk);
      for (int64_t j = 0; j < dk; ++j) dq[i * width + j] += of_q[j];
      for (int64_t j = 0; j < dk; ++j) dkeys[i * width + j] += of_k[j];
    }

    // Of the state at the chunk's start.
    if (!last_chunk) {
      for (int64_t i = 0; i < dk * dv; ++i) dstate[i] *= decay[n - 1];
    }
    chunk_product({b.u, 1, width}, dk, n, {dqh, dv, 1}, dv, 1.f, dstate, dv, !last_chunk, b);
    chunk_product({b.u + dk, 1, width}, dk, n, {work.du, dv, 1}, dv, 1.f, dstate, dv, true, b);
  }
  chunk_product({work.dp, C, 1}, n, n, k, dk, 1.f, dq, width, true, b, Part::kLowerA);
  chunk_product({work.dp, 1, C}, n, n, q, dk, 1.f, dkeys, width, true, b, Part::kUpperA);
  chunk_product({work.dl, C, 1}, n, n, k, dk, 1.f, dkeys, width, true, b, Part::kLowerA);
  chunk_product({work.dl, 1, C}, n, n, k, dk, 1.f, dkeys, width, true, b, Part::kUpperA);

  // A token's decay is in the sums of all later tokens.
  const float rate = std::exp(in.a_log[head]);
  float total = 0.f;
  for (int64_t i = n - 1; i >= 0; --i) {
    total += dsum[i];
    const int64_t at = (tokens.begin + i) * s.heads + head;
    da[at] = -rate * total / (1.f + std::exp(-in.a[at] - in.dt_bias[head]));
  }
}

// x had the length 1 / inverse, and was multiplied by inverse * scale to y: dy becomes dx.
void backward_of_length(const float* y, float inverse, float scale, int64_t n, float* dy) {
  const float along = row_dot(y, dy, n) / (scale * scale);
  for (int64_t j = 0; j < n; ++j) dy[j] = inverse * scale * (dy[j] - along * y[j]);
}

// The gradients of a convolution's inputs from those of its outputs, in place, for n tokens of rows [n + taps - 1,
// width].
void transposed_convolution(const DeltaNetShape& s, const DeltaNetInput& in, int64_t key_head, int64_t n, float* rows) {
  const DeltaParts parts(s, key_head);
  const int64_t width = delta_width(s);
  for (int64_t part = 0, at = 0; part < 3; at += parts.width[part++]) {
    for (int64_t j = 0; j < parts.width[part]; j += kVec) {
      const int64_t lanes = std::min<int64_t>(kVec, parts.width[part] - j);
      Vec taps[kMostDeltaTaps];  // the last one first
      for (int64_t k = 0; k < s.taps; ++k) {
        taps[k] = load_part(in.taps + (s.taps - 1 - k) * s.channels() + parts.from[part] + j, lanes);
      }
      convolve_column(taps, s.taps, n, width, lanes, rows + at + j);
    }
  }
}

// From the gradients of q, k and v in work.du_inputs to those of qkv. b.before has the convolution's outputs. `later`
// has the gradients of those of the first tokens behind the chunk, and becomes those of the chunk's first tokens.
void backward_of_convolution(const DeltaNetShape& s, const DeltaNetInput& in, const ChunkTokens& tokens,
                             int64_t key_head, float* later, float* dqkv, const Work& work, const DeltaBuffers& b) {
  const int64_t n = tokens.size(), width = delta_width(s), dk = s.key_dim;
  const float scale = 1.f / std::sqrt(static_cast<float>(dk));
  for (int64_t i = 0; i < n; ++i) {
    float* du = work.du_inputs + i * width;
    backward_of_length(b.u + i * width, b.lengths[i], scale, dk, du);
    backward_of_length(b.u + i * width + dk, b.lengths[C + i], 1.f, dk, du + dk);
    for (int64_t j = 0; j < width; j += kVec) {
      const int64_t lanes = std::min<int64_t>(kVec, width - j);
      float* before = b.before + i * width + j;
      store_part(before, load_part(du + j, lanes) * silu(load_part(before, lanes)).slope, lanes);
    }
  }
  std::copy_n(later, (s.taps - 1) * width, b.before + n * width);
  std::copy_n(b.before, (s.taps - 1) * width, later);
  transposed_convolution(s, in, key_head, n, b.before);
  const DeltaParts parts(s, key_head);
  for (int64_t i = 0; i < n; ++i) {
    const float* row = b.before + i * width;
    for (int part = 0; part < 3; row += parts.width[part++]) {
      std::copy_n(row, parts.width[part], dqkv + (tokens.begin + i) * s.channels() + parts.from[part]);
    }
  }
}

void backward_row(const DeltaNetShape& s, const DeltaNetInput& in, int64_t begin, int64_t end, int64_t key_head,
                  const float* dout, float* dqkv, float* db, float* da, float* later, const Work& work) {
  const int64_t dk = s.key_dim, dv = s.value_dim, group = delta_group(s), state = dk * dv, width = delta_width(s);
  compute_again(s, in, begin, end, key_head, work);
  std::fill_n(later, (s.taps - 1) * width, 0.f);
  for (int64_t chunk = chunks_of(end - begin) - 1; chunk >= 0; --chunk) {
    const int64_t c = begin + chunk * C;
    const ChunkTokens tokens{begin, c, std::min(end, c + C)};
    const DeltaBuffers buffers = work.buffers_of(s, chunk);
    std::fill_n(work.du_inputs, tokens.size() * width, 0.f);
    for (int64_t member = 0; member < group; ++member) {
      const int64_t head = key_head * group + member, at = (chunk * group + member) * C * dv;
      load_gates(s, in, tokens, head, buffers);
      backward_chunk(s, in, tokens, end, head, work.state_of(s, chunk, member), work.u + at, work.w + at,
                     dout + c * s.values() + head * dv, work.dstates + member * state, db, da, work, buffers);
      for (int64_t i = 0; i < tokens.size(); ++i) {
        std::copy_n(work.dv + i * dv, dv, work.du_inputs + i * width + 2 * dk + member * dv);
      }
    }
    backward_of_convolution(s, in, tokens, key_head, later, dqkv, work, buffers);
  }
}

int64_t worker_floats(const DeltaNetShape& s) { return Work::floats(s) + (s.taps - 1) * delta_width(s); }

}  // namespace

void delta_net_backward(const DeltaNetShape& s, const DeltaNetInput& in, const float* dout, float* dqkv, float* db,
                        float* da, Scratch scratch) {
  float* base = scratch.take(thread_count() * worker_floats(s));
  each_delta_row(s, in, [&](int64_t begin, int64_t end, int64_t key_head, int64_t worker) {
    float* mine = base + worker * worker_floats(s);
    const Work work(mine, s);
    backward_row(s, in, begin, end, key_head, dout, dqkv, db, da, mine + Work::floats(s), work);
  });
}

size_t delta_net_backward_scratch_bytes(const DeltaNetShape& s) {
  ScratchSize size;
  size.take(thread_count() * worker_floats(s));
  return size.bytes;
}

}  // namespace mft::MFT_ISA
