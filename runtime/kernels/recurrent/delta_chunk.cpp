#include "runtime/kernels/recurrent/delta_chunk.h"

#include <algorithm>
#include <cmath>

#include "runtime/kernels/elementwise/activations.h"
#include "runtime/kernels/linear/row_sums.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t C = kDeltaChunk;
constexpr float kEps = 1e-6f;  // within the square root of a length
constexpr int64_t kSolveBlock = 12;

// Calls part(i, lanes) for the registers that cover [0, n).
template <typename Part>
void each_register(int64_t n, const Part& part) {
  for (int64_t i = 0; i < n; i += kVec) part(i, std::min<int64_t>(kVec, n - i));
}

// The first channel of each part of a token in `u`, and their widths.
struct Parts {
  int64_t from[3];
  int64_t width[3];
  Parts(const DeltaNetShape& s, int64_t key_head)
      : from{key_head * s.key_dim, s.keys() + key_head * s.key_dim,
             2 * s.keys() + key_head * delta_group(s) * s.value_dim},
        width{s.key_dim, s.key_dim, delta_group(s) * s.value_dim} {}
};

// The convolution of token t in the channels from `channel` on.
Vec convolved(const DeltaNetShape& s, const DeltaNetInput& in, const float* earlier, int64_t t, int64_t channel,
              int64_t lanes) {
  const int64_t channels = s.channels();
  Vec sum{};
  for (int64_t j = 0; j <= std::min(s.taps - 1, in.positions[t]); ++j) {
    const float* x = t >= j ? in.qkv + (t - j) * channels : earlier + (s.taps - 1 + t - j) * channels;
    sum += load_part(in.taps + (s.taps - 1 - j) * channels + channel, lanes) * load_part(x + channel, lanes);
  }
  return sum;
}

// Divides x [n] by its length, and multiplies it by `scale`; returns 1 / length.
float to_unit_length(float* x, int64_t n, float scale) {
  const float inverse = 1.f / std::sqrt(row_dot(x, x, n) + kEps);
  each_register(
      n, [&](int64_t i, int64_t lanes) { store_part(x + i, load_part(x + i, lanes) * (inverse * scale), lanes); });
  return inverse;
}

float softplus(float x) { return x > 20.f ? x : std::log1p(std::exp(x)); }

// y += factor x.
void add_scaled(const float* x, float factor, int64_t n, float* y) {
  each_register(n, [&](int64_t i, int64_t lanes) {
    store_part(y + i, load_part(y + i, lanes) + load_part(x + i, lanes) * factor, lanes);
  });
}

}  // namespace

int64_t DeltaBuffers::floats(const DeltaNetShape& s) {
  const int64_t dim = std::max(s.key_dim, s.value_dim), width = delta_width(s), most = std::max(2 * C, dim);
  return (C + s.taps - 1) * width + C * width + 2 * C + 4 * C * C + 5 * C + 2 * C * dim + packed_floats(most, most) +
         panel_floats(most, most);
}

DeltaBuffers::DeltaBuffers(float* base, const DeltaNetShape& s) {
  const int64_t dim = std::max(s.key_dim, s.value_dim), width = delta_width(s), most = std::max(2 * C, dim);
  const auto take = [&](int64_t n) {
    float* taken = base;
    base += n;
    return taken;
  };
  before = take((C + s.taps - 1) * width);
  u = take(C * width);
  lengths = take(2 * C);
  qk = take(C * C);
  kk = take(C * C);
  p = take(C * C);
  l = take(C * C);
  gates = take(5 * C);
  products = take(2 * C * dim);
  packed = take(packed_floats(most, most));
  panels = take(panel_floats(most, most));
}

void delta_product(Mat a, int64_t m, int64_t k, Mat b, int64_t n, float alpha, float* c, int64_t ldc, bool add,
                   const DeltaBuffers& buffers) {
  pack(a, m, k, alpha, buffers.packed);
  pack_panels(b, k, n, buffers.panels);
  for (int64_t n0 = 0; n0 < n; n0 += kTileCols) {
    multiply_panel(buffers.packed, m, k, buffers.panels + n0 * k, kTileCols, c + n0, ldc, std::min(kTileCols, n - n0),
                   add);
  }
}

void load_chunk(const DeltaNetShape& s, const DeltaNetInput& in, const ChunkTokens& tokens, int64_t key_head,
                const float* earlier, const DeltaBuffers& buffers) {
  const int64_t n = tokens.size(), width = delta_width(s), dk = s.key_dim;
  const Parts parts(s, key_head);
  for (int64_t i = 0; i < n; ++i) {
    float* before = buffers.before + i * width;
    float* u = buffers.u + i * width;
    for (int part = 0, at = 0; part < 3; at += static_cast<int>(parts.width[part++])) {
      each_register(parts.width[part], [&](int64_t j, int64_t lanes) {
        const Vec x = convolved(s, in, earlier, tokens.begin + i, parts.from[part] + j, lanes);
        store_part(before + at + j, x, lanes);
        store_part(u + at + j, silu(x).value, lanes);
      });
    }
    buffers.lengths[i] = to_unit_length(u, dk, 1.f / std::sqrt(static_cast<float>(dk)));
    buffers.lengths[C + i] = to_unit_length(u + dk, dk, 1.f);
  }
  const Mat q{buffers.u, width, 1}, k_transposed{buffers.u + dk, 1, width}, k{buffers.u + dk, width, 1};
  delta_product(q, n, dk, k_transposed, n, 1.f, buffers.qk, C, false, buffers);
  delta_product(k, n, dk, k_transposed, n, 1.f, buffers.kk, C, false, buffers);
}

void load_gates(const DeltaNetShape& s, const DeltaNetInput& in, const ChunkTokens& tokens, int64_t head,
                const DeltaBuffers& buffers) {
  const int64_t n = tokens.size();
  float *beta = buffers.gates, *sum = beta + C, *decay = sum + C, *rest = decay + C;
  const float rate = std::exp(in.a_log[head]);
  float total = 0.f;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = (tokens.begin + i) * s.heads + head;
    beta[i] = s.beta_scale / (1.f + std::exp(-in.b[at]));
    total -= rate * softplus(in.a[at] + in.dt_bias[head]);
    sum[i] = total;
  }
  for (int64_t i = 0; i < n; ++i) {
    decay[i] = std::exp(sum[i]);
    rest[i] = std::exp(total - sum[i]);
  }
  for (int64_t i = 0; i < n; ++i) {
    float *p = buffers.p + i * C, *l = buffers.l + i * C;
    const float *qk = buffers.qk + i * C, *kk = buffers.kk + i * C;
    each_register(n, [&](int64_t j, int64_t lanes) {
      if (j > i) {
        store_part(p + j, Vec{}, lanes);
        store_part(l + j, Vec{}, lanes);
        return;
      }
      const Vec between = exp(vmin(splat(sum[i]) - load_part(sum + j, lanes), Vec{}));
      store_part(p + j, between * load_part(qk + j, lanes), lanes);
      store_part(l + j, between * load_part(kk + j, lanes) * beta[i], lanes);
    });
    for (int64_t j = i + 1; j < std::min(n, i + kVec); ++j) p[j] = 0.f;
    for (int64_t j = i; j < std::min(n, i + kVec); ++j) l[j] = 0.f;
  }
}

void solve_lower(const float* l, int64_t tokens, float* x, int64_t n, int64_t ldx, const DeltaBuffers& buffers) {
  for (int64_t i0 = 0; i0 < tokens; i0 += kSolveBlock) {
    const int64_t i1 = std::min(tokens, i0 + kSolveBlock);
    for (int64_t i = i0; i < i1; ++i) {
      for (int64_t j = i0; j < i; ++j) add_scaled(x + j * ldx, -l[i * C + j], n, x + i * ldx);
    }
    if (i1 == tokens) break;
    delta_product({l + i1 * C + i0, C, 1}, tokens - i1, i1 - i0, {x + i0 * ldx, ldx, 1}, n, -1.f, x + i1 * ldx, ldx,
                  true, buffers);
  }
}

void solve_transposed(const float* l, int64_t tokens, float* x, int64_t n, int64_t ldx, const DeltaBuffers& buffers) {
  for (int64_t i1 = tokens; i1 > 0;) {
    const int64_t i0 = (i1 - 1) / kSolveBlock * kSolveBlock;
    for (int64_t i = i1 - 1; i >= i0; --i) {
      for (int64_t j = i0; j < i; ++j) add_scaled(x + i * ldx, -l[i * C + j], n, x + j * ldx);
    }
    if (i0 > 0) {
      delta_product({l + i0 * C, 1, C}, i0, i1 - i0, {x + i0 * ldx, ldx, 1}, n, -1.f, x, ldx, true, buffers);
    }
    i1 = i0;
  }
}

void solve_chunk(const DeltaNetShape& s, int64_t tokens, const float* v, const float* state, float* u, float* w,
                 const DeltaBuffers& buffers) {
  const int64_t dk = s.key_dim, dv = s.value_dim, width = delta_width(s);
  const float *beta = buffers.gates, *decay = beta + 2 * C;
  const Mat h{state, dv, 1};
  delta_product({buffers.u + dk, width, 1}, tokens, dk, h, dv, 1.f, buffers.products, dv, false, buffers);
  // The panels of H are there: only the left-hand factor is another.
  pack({buffers.u, width, 1}, tokens, dk, 1.f, buffers.packed);
  for (int64_t n0 = 0; n0 < dv; n0 += kTileCols) {
    multiply_panel(buffers.packed, tokens, dk, buffers.panels + n0 * dk, kTileCols, buffers.products + C * dv + n0, dv,
                   std::min(kTileCols, dv - n0), false);
  }
  for (int64_t i = 0; i < tokens; ++i) {
    each_register(dv, [&](int64_t j, int64_t lanes) {
      const Vec error =
          load_part(v + i * width + j, lanes) - load_part(buffers.products + i * dv + j, lanes) * decay[i];
      if (w != nullptr) store_part(w + i * dv + j, error, lanes);
      store_part(u + i * dv + j, error * beta[i], lanes);
    });
  }
  solve_lower(buffers.l, tokens, u, dv, dv, buffers);
}

void advance_state(const DeltaNetShape& s, int64_t tokens, const float* u, float* state, const DeltaBuffers& buffers) {
  const int64_t dk = s.key_dim, dv = s.value_dim, width = delta_width(s);
  const float *decay = buffers.gates + 2 * C, *rest = buffers.gates + 3 * C;
  for (int64_t i = 0; i < dk * dv; i += kVec) {
    const int64_t lanes = std::min<int64_t>(kVec, dk * dv - i);
    store_part(state + i, load_part(state + i, lanes) * decay[tokens - 1], lanes);
  }
  float* weighted = buffers.products;  // [tokens, dk], the keys times what is left of them at the end
  for (int64_t i = 0; i < tokens; ++i) {
    each_register(dk, [&](int64_t j, int64_t lanes) {
      store_part(weighted + i * dk + j, load_part(buffers.u + i * width + dk + j, lanes) * rest[i], lanes);
    });
  }
  delta_product({weighted, 1, dk}, dk, tokens, {u, dv, 1}, dv, 1.f, state, dv, true, buffers);
}

}  // namespace mft::MFT_ISA
