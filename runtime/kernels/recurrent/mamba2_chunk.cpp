#include "runtime/kernels/recurrent/mamba2_chunk.h"

#include <algorithm>
#include <cmath>

#include "runtime/kernels/elementwise/activations.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t C = kMambaChunk;

int64_t largest_dim(const Mamba2Shape& s) { return std::max({s.state, s.dim, C}); }
int64_t most_chunks(const Mamba2Shape& s) { return ceil_div(s.t, C); }

void apply_silu(const float* before, int64_t n, float* out) {
  each_register(
      n, [&](int64_t i, int64_t lanes) { store_part(out + i, silu(load_part(before + i, lanes)).value, lanes); });
}

}  // namespace

int64_t MambaGroup::floats(const Mamba2Shape& s) { return 4 * s.t * s.state + most_chunks(s) * C * C; }

MambaGroup::MambaGroup(float* base, const Mamba2Shape& s)
    : before(base), bc(base + 2 * s.t * s.state), cb(base + 4 * s.t * s.state) {}

int64_t MambaBuffers::floats(const Mamba2Shape& s) {
  return 3 * C * s.dim + 5 * C + C * C + C * largest_dim(s) + ProductBuffers::floats(largest_dim(s));
}

MambaBuffers::MambaBuffers(float* base, const Mamba2Shape& s) {
  before = base;
  x = before + C * s.dim;
  u = x + C * s.dim;
  gates = u + C * s.dim;
  p = gates + 5 * C;
  weighted = p + C * C;
  set_product(weighted + C * largest_dim(s), largest_dim(s));
}

void convolve_tokens(const Mamba2Shape& s, const Mamba2Input& in, const RowTokens& row, int64_t from, int64_t to,
                     int64_t channel, int64_t width, const float* earlier, float* out) {
  for (int64_t t = from; t < to; ++t, out += width) {
    each_register(width, [&](int64_t j, int64_t lanes) {
      Vec sum = load_part(in.conv_bias + channel + j, lanes);
      for (int64_t k = 0; k < s.taps; ++k) {
        const int64_t source = t - (s.taps - 1) + k;
        const float* x = in.xbc + source * s.channels();
        if (source < row.begin) {
          if (earlier == nullptr) continue;
          x = earlier + (s.taps - 1 + source - row.begin) * s.channels();
        }
        sum += load_part(in.taps + k * s.channels() + channel + j, lanes) * load_part(x + channel + j, lanes);
      }
      store_part(out + j, sum, lanes);
    });
  }
}

int64_t load_group_floats(const Mamba2Shape& s) { return thread_count() * ProductBuffers::floats(largest_dim(s)); }

void load_group(const Mamba2Shape& s, const Mamba2Input& in, const RowTokens& row, int64_t group, const float* earlier,
                const MambaGroup& shared, float* products) {
  const int64_t n = s.state, width = 2 * n;
  parallel_for_worker(row.chunks(), [&](int64_t chunk, int64_t worker) {
    const int64_t from = row.begin + chunk * C, to = std::min(row.end, from + C), tokens = to - from;
    ProductBuffers buffers;
    buffers.set_product(products + worker * ProductBuffers::floats(largest_dim(s)), largest_dim(s));
    float* cb = shared.cb + chunk * C * C;
    float* before = shared.before + chunk * C * width;
    float* bc = shared.bc + chunk * C * width;
    for (const int64_t part : {0, 1}) {
      const int64_t channel = s.values() + (part * s.groups + group) * n;
      for (int64_t t = from; t < to; ++t) {
        convolve_tokens(s, in, row, t, t + 1, channel, n, earlier, before + (t - from) * width + part * n);
      }
    }
    apply_silu(before, tokens * width, bc);
    chunk_product({bc + n, width, 1}, tokens, n, {bc, 1, width}, tokens, 1.f, cb, C, false, buffers, Part::kLowerC);
  });
}

void load_head(const Mamba2Shape& s, const Mamba2Input& in, const RowTokens& row, int64_t from, int64_t to,
               int64_t head, const float* earlier, const MambaGroup& shared, const MambaBuffers& buffers) {
  const int64_t n = to - from, d = s.dim;
  convolve_tokens(s, in, row, from, to, head * d, d, earlier, buffers.before);
  apply_silu(buffers.before, n * d, buffers.x);
  float *step = buffers.gates, *decay = step + 2 * C, *rest = decay + C;
  const DecaySums sums = buffers.sums();
  const float rate = std::exp(in.a_log[head]);
  for (int64_t i = 0; i < n; ++i) step[i] = softplus(in.dt[(from + i) * s.heads + head] + in.dt_bias[head]);
  sums.load(n, [&](int64_t i) { return -rate * step[i]; });
  const float* cb = shared.cb + (from - row.begin) / C * C * C;
  for (int64_t i = 0; i < n; ++i) {
    decay[i] = std::exp(sums.high[i]);
    rest[i] = sums.between(n - 1, i);
    for (int64_t j = 0; j < d; ++j) buffers.u[i * d + j] = step[i] * buffers.x[i * d + j];
    float* p = buffers.p + i * C;
    each_register(i + 1, [&](int64_t j, int64_t lanes) {
      store_part(p + j, sums.between(i, j, lanes) * load_part(cb + i * C + j, lanes), lanes);
    });
    std::fill(p + i + 1, p + n, 0.f);
  }
}

void advance_mamba_state(const Mamba2Shape& s, int64_t n, const float* bc, const float* state, float* next,
                         const MambaBuffers& buffers) {
  const float *decay = buffers.gates + 2 * C, *rest = decay + C;
  if (state != nullptr) {
    for (int64_t i = 0; i < s.state * s.dim; ++i) next[i] = state[i] * decay[n - 1];
  }
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < s.state; ++j) buffers.weighted[i * s.state + j] = rest[i] * bc[i * 2 * s.state + j];
  }
  chunk_product({buffers.weighted, 1, s.state}, s.state, n, {buffers.u, s.dim, 1}, s.dim, 1.f, next, s.dim,
                state != nullptr, buffers);
}

}  // namespace mft::MFT_ISA
