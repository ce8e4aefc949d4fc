#include <algorithm>
#include <cmath>

#include "runtime/kernels/elementwise/activations.h"
#include "runtime/kernels/linear/row_sums.h"
#include "runtime/kernels/recurrent/mamba2.h"
#include "runtime/kernels/recurrent/mamba2_chunk.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t C = kMambaChunk;

// Buffers of one part besides those of a chunk.
struct Work {
  float* states;   // [chunks - 1, state, dim], at the start of each chunk of a head but the row's first one
  float* dstate;   // [state, dim], gradient of that at the end of the chunk
  float* dbc;      // [tokens, 2 state], sums of the gradients over the part's heads
  float* dbefore;  // [tokens, dim], gradients of a head's inputs of silu
  float* du;       // [chunk, dim]
  float* dp;       // [chunk, chunk]
  float* dgates;   // [2, chunk]: of the summed logarithms of the decays, and of the steps
  float* through;  // [chunk, state]
  MambaBuffers buffers;

  // The state at the start of a chunk; null for zeros.
  float* state_of(const Mamba2Shape& s, int64_t chunk) const {
    return chunk == 0 ? nullptr : states + (chunk - 1) * s.state * s.dim;
  }

  static int64_t floats(const Mamba2Shape& s) {
    const int64_t chunks = ceil_div(s.t, C);
    return chunks * s.state * s.dim + 2 * s.t * s.state + s.t * s.dim + C * s.dim + C * C + 2 * C + C * s.state +
           MambaBuffers::floats(s);
  }

  Work(float* base, const Mamba2Shape& s) : buffers(base, s) {
    base += MambaBuffers::floats(s);
    const auto take = [&](int64_t n) {
      float* taken = base;
      base += n;
      return taken;
    };
    states = take((ceil_div(s.t, C) - 1) * s.state * s.dim);
    dstate = take(s.state * s.dim);
    dbc = take(2 * s.t * s.state);
    dbefore = take(s.t * s.dim);
    du = take(C * s.dim);
    dp = take(C * C);
    dgates = take(2 * C);
    through = take(C * s.state);
  }
};

// Computes the states at the start of each chunk.
void compute_states(const Mamba2Shape& s, const Mamba2Input& in, const RowTokens& row, int64_t head,
                    const MambaGroup& shared, const Work& work) {
  for (int64_t chunk = 0; chunk + 1 < row.chunks(); ++chunk) {
    const int64_t from = row.begin + chunk * C;
    load_head(s, in, row, from, from + C, head, nullptr, shared, work.buffers);
    advance_mamba_state(s, C, shared.bc + chunk * C * 2 * s.state, work.state_of(s, chunk), work.state_of(s, chunk + 1),
                        work.buffers);
  }
}

// Gradients of one head in one chunk, which `load_head` has loaded. `state` is that at the chunk's start (null: zeros).
// dy points to the head's first number in the chunk's first token. Adds those of B and C to work.dbc, sets that of the
// inputs of silu, and moves the state's gradient to the chunk's start; that behind the row's last chunk is zero, and
// not read.
void backward_chunk(const Mamba2Shape& s, const Mamba2Input& in, const RowTokens& row, int64_t from, int64_t n,
                    int64_t head, const float* state, const float* dy, float* ddt, const MambaGroup& shared,
                    const Work& work) {
  const MambaBuffers& b = work.buffers;
  const int64_t d = s.dim, size = s.state, width = 2 * size, ldy = s.values();
  const float *step = b.gates, *decay = step + 2 * C, *rest = decay + C;
  const DecaySums sums = b.sums();
  const float* bc = shared.bc + (from - row.begin) * width;
  float* dbc = work.dbc + (from - row.begin) * width;
  float *dsum = work.dgates, *dstep = dsum + C;
  const bool last_chunk = from + n == row.end;
  std::fill_n(dsum, n, 0.f);

  // Of U: from the output, and from the state behind the chunk.
  chunk_product({b.p, 1, C}, n, n, {dy, ldy, 1}, d, 1.f, work.du, d, false, b, Part::kUpperA);
  if (!last_chunk) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < size; ++j) b.weighted[i * size + j] = rest[i] * bc[i * width + j];
    }
    chunk_product({b.weighted, size, 1}, n, size, {work.dstate, d, 1}, d, 1.f, work.du, d, true, b);

    // Of B and of the decays, through the state behind the chunk.
    chunk_product({b.u, d, 1}, n, d, {work.dstate, 1, d}, size, 1.f, work.through, size, false, b);
    float last = state == nullptr ? 0.f : decay[n - 1] * row_dot(state, work.dstate, size * d);
    for (int64_t i = 0; i < n; ++i) {
      const float part = rest[i] * row_dot(bc + i * width, work.through + i * size, size);
      last += part;
      dsum[i] -= part;
      for (int64_t j = 0; j < size; ++j) dbc[i * width + j] += rest[i] * work.through[i * size + j];
    }
    dsum[n - 1] += last;
  }

  // Of P, and of C_i . B_j.
  chunk_product({dy, ldy, 1}, n, d, {b.u, 1, d}, n, 1.f, work.dp, C, false, b, Part::kLowerC);
  for (int64_t i = 0; i < n; ++i) {
    float* dp = work.dp + i * C;
    float of_row = 0.f;
    each_register(i + 1, [&](int64_t j, int64_t lanes) {
      const Vec between = sums.between(i, j, lanes), of_p = load_part(dp + j, lanes);
      const Vec of_decay = of_p * load_part(b.p + i * C + j, lanes);
      of_row += sum(of_decay);
      store_part(dsum + j, load_part(dsum + j, lanes) - of_decay, lanes);
      store_part(dp + j, of_p * between, lanes);
    });
    dsum[i] += of_row;
    std::fill(dp + i + 1, dp + n, 0.f);
  }
  chunk_product({work.dp, C, 1}, n, n, {bc, width, 1}, size, 1.f, dbc + size, width, true, b, Part::kLowerA);
  chunk_product({work.dp, 1, C}, n, n, {bc + size, width, 1}, size, 1.f, dbc, width, true, b, Part::kUpperA);

  if (state != nullptr) {
    // dy times the decay is the gradient of C H.
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < d; ++j) b.weighted[i * d + j] = decay[i] * dy[i * ldy + j];
    }
    chunk_product({b.weighted, d, 1}, n, d, {state, 1, d}, size, 1.f, work.through, size, false, b);
    for (int64_t i = 0; i < n; ++i) {
      dsum[i] += row_dot(bc + i * width + size, work.through + i * size, size);
      for (int64_t j = 0; j < size; ++j) dbc[i * width + size + j] += work.through[i * size + j];
    }

    // Of the state at the chunk's start.
    if (!last_chunk) {
      for (int64_t i = 0; i < size * d; ++i) work.dstate[i] *= decay[n - 1];
    }
    chunk_product({bc + size, 1, width}, size, n, {b.weighted, d, 1}, d, 1.f, work.dstate, d, !last_chunk, b);
  }

  // Of x and of the steps. A token's decay is in the sums of all later tokens.
  const float rate = std::exp(in.a_log[head]);
  float total = 0.f;
  for (int64_t i = n - 1; i >= 0; --i) {
    total += dsum[i];
    dstep[i] = row_dot(work.du + i * d, b.x + i * d, d) - rate * total;
    const int64_t at = (from + i) * s.heads + head;
    ddt[at] = dstep[i] / (1.f + std::exp(-in.dt[at] - in.dt_bias[head]));
    float* dbefore = work.dbefore + (from - row.begin + i) * d;
    each_register(d, [&](int64_t j, int64_t lanes) {
      const Vec dx =
          load_part(work.du + i * d + j, lanes) * step[i] + load_part(dy + i * ldy + j, lanes) * in.skip[head];
      store_part(dbefore + j, dx * silu(load_part(b.before + i * d + j, lanes)).slope, lanes);
    });
  }
}

// The gradients of a convolution's inputs from those of its outputs [tokens, ld], for `width` channels from `channel`
// on.
void transposed_convolution(const Mamba2Shape& s, const Mamba2Input& in, const RowTokens& row, int64_t channel,
                            int64_t width, const float* dbefore, int64_t ld, float* dxbc) {
  for (int64_t t = row.begin; t < row.end; ++t) {
    each_register(width, [&](int64_t j, int64_t lanes) {
      Vec total{};
      for (int64_t k = 0; k < s.taps; ++k) {
        const int64_t later = t + (s.taps - 1) - k;
        if (later >= row.end) continue;
        total += load_part(in.taps + k * s.channels() + channel + j, lanes) *
                 load_part(dbefore + (later - row.begin) * ld + j, lanes);
      }
      store_part(dxbc + t * s.channels() + channel + j, total, lanes);
    });
  }
}

void backward_head(const Mamba2Shape& s, const Mamba2Input& in, const RowTokens& row, int64_t head, const float* dy,
                   float* dxbc, float* ddt, const MambaGroup& shared, const Work& work) {
  compute_states(s, in, row, head, shared, work);
  for (int64_t chunk = row.chunks() - 1; chunk >= 0; --chunk) {
    const int64_t from = row.begin + chunk * C, to = std::min(row.end, from + C);
    load_head(s, in, row, from, to, head, nullptr, shared, work.buffers);
    backward_chunk(s, in, row, from, to - from, head, work.state_of(s, chunk), dy + from * s.values() + head * s.dim,
                   ddt, shared, work);
  }
  transposed_convolution(s, in, row, head * s.dim, s.dim, work.dbefore, s.dim, dxbc);
}

// Adds up the parts' gradients of B and C, in `first`, and passes them through silu and the convolution.
void backward_group(const Mamba2Shape& s, const Mamba2Input& in, const RowTokens& row, int64_t group, float* dxbc,
                    const MambaGroup& shared, float* works) {
  const int64_t width = 2 * s.state;
  float* first = Work(works, s).dbc;
  parallel_ranges(row.size(), C, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * width; i < end * width; i += kVec) {
      const int64_t lanes = std::min<int64_t>(kVec, end * width - i);
      Vec total = load_part(first + i, lanes);
      for (int64_t part = 1; part < mamba_parts(s); ++part) {
        total += load_part(Work(works + part * Work::floats(s), s).dbc + i, lanes);
      }
      store_part(first + i, total * silu(load_part(shared.before + i, lanes)).slope, lanes);
    }
  });
  parallel_for(2, [&](int64_t part) {
    const int64_t channel = s.values() + (part * s.groups + group) * s.state;
    transposed_convolution(s, in, row, channel, s.state, first + part * s.state, width, dxbc);
  });
}

}  // namespace

void mamba2_backward(const Mamba2Shape& s, const Mamba2Input& in, const float* dy, float* dxbc, float* ddt,
                     Scratch scratch) {
  const MambaGroup shared(scratch.take(MambaGroup::floats(s)), s);
  float* products = scratch.take(load_group_floats(s));
  float* works = scratch.take(mamba_parts(s) * Work::floats(s));
  each_row(s, in, [&](const RowTokens& row) {
    for (int64_t group = 0; group < s.groups; ++group) {
      load_group(s, in, row, group, nullptr, shared, products);
      each_part_of_group(s, group, [&](int64_t first, int64_t last, int64_t part) {
        const Work work(works + part * Work::floats(s), s);
        std::fill_n(work.dbc, row.size() * 2 * s.state, 0.f);
        for (int64_t head = first; head < last; ++head) {
          backward_head(s, in, row, head, dy, dxbc, ddt, shared, work);
        }
      });
      backward_group(s, in, row, group, dxbc, shared, works);
    }
  });
}

size_t mamba2_backward_scratch_bytes(const Mamba2Shape& s) {
  ScratchSize size;
  size.take(MambaGroup::floats(s));
  size.take(load_group_floats(s));
  size.take(mamba_parts(s) * Work::floats(s));
  return size.bytes;
}

}  // namespace mft::MFT_ISA
