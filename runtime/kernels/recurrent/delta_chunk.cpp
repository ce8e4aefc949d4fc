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

// Copies the tokens of a chunk and those before it that the convolution reads, which are zero before the row's first
// one, to rows [taps - 1 + n, width].
void gather(const DeltaNetShape& s, const DeltaNetInput& in, const ChunkTokens& tokens, const DeltaParts& parts,
            const float* earlier, float* rows) {
  const int64_t channels = s.channels(), width = delta_width(s);
  for (int64_t t = tokens.begin - (s.taps - 1); t < tokens.end; ++t, rows += width) {
    const float* x = in.qkv + t * channels;
    if (t < tokens.row) {
      if (earlier == nullptr) {
        std::fill_n(rows, width, 0.f);
        continue;
      }
      x = earlier + (s.taps - 1 + t) * channels;
    }
    float* out = rows;
    for (int part = 0; part < 3; ++part) out = std::copy_n(x + parts.from[part], parts.width[part], out);
  }
}

// The convolution of the gathered rows [taps - 1 + n, width], in place: row i becomes that of the chunk's token i.
void convolve(const DeltaNetShape& s, const DeltaNetInput& in, const DeltaParts& parts, int64_t n, float* rows) {
  const int64_t width = delta_width(s);
  for (int64_t part = 0, at = 0; part < 3; at += parts.width[part++]) {
    each_register(parts.width[part], [&](int64_t j, int64_t lanes) {
      Vec taps[kMostDeltaTaps];
      for (int64_t k = 0; k < s.taps; ++k) {
        taps[k] = load_part(in.taps + k * s.channels() + parts.from[part] + j, lanes);
      }
      convolve_column(taps, s.taps, n, width, lanes, rows + at + j);
    });
  }
}

// Divides x [n] by its length, and multiplies it by `scale`; returns 1 / length.
float to_unit_length(float* x, int64_t n, float scale) {
  const float inverse = 1.f / std::sqrt(row_dot(x, x, n) + kEps);
  each_register(
      n, [&](int64_t i, int64_t lanes) { store_part(x + i, load_part(x + i, lanes) * (inverse * scale), lanes); });
  return inverse;
}

// y += factor x.
void add_scaled(const float* x, float factor, int64_t n, float* y) {
  each_register(n, [&](int64_t i, int64_t lanes) {
    store_part(y + i, load_part(y + i, lanes) + load_part(x + i, lanes) * factor, lanes);
  });
}

}  // namespace

int64_t DeltaBuffers::loaded_floats(const DeltaNetShape& s) {
  const int64_t width = delta_width(s);
  return (C + s.taps - 1) * width + C * width + 2 * C + 2 * C * C;
}

void DeltaBuffers::set_loaded(float* base, const DeltaNetShape& s) {
  const int64_t width = delta_width(s);
  before = base;
  u = before + (C + s.taps - 1) * width;
  lengths = u + C * width;
  qk = lengths + 2 * C;
  kk = qk + C * C;
}

int64_t DeltaBuffers::floats(const DeltaNetShape& s) {
  const int64_t dim = std::max(s.key_dim, s.value_dim), most = std::max(2 * C, dim);
  return loaded_floats(s) + 2 * C * C + 6 * C + 2 * C * dim + ProductBuffers::floats(most);
}

DeltaBuffers::DeltaBuffers(float* base, const DeltaNetShape& s) {
  const int64_t dim = std::max(s.key_dim, s.value_dim), most = std::max(2 * C, dim);
  set_loaded(base, s);
  p = base + loaded_floats(s);
  l = p + C * C;
  gates = l + C * C;
  products = gates + 6 * C;
  set_product(products + 2 * C * dim, most);
}

void load_chunk(const DeltaNetShape& s, const DeltaNetInput& in, const ChunkTokens& tokens, int64_t key_head,
                const float* earlier, const DeltaBuffers& buffers) {
  const int64_t n = tokens.size(), width = delta_width(s), dk = s.key_dim;
  const DeltaParts parts(s, key_head);
  gather(s, in, tokens, parts, earlier, buffers.before);
  convolve(s, in, parts, n, buffers.before);
  for (int64_t i = 0; i < n; ++i) {
    float* u = buffers.u + i * width;
    each_register(width, [&](int64_t j, int64_t lanes) {
      store_part(u + j, silu(load_part(buffers.before + i * width + j, lanes)).value, lanes);
    });
    buffers.lengths[i] = to_unit_length(u, dk, 1.f / std::sqrt(static_cast<float>(dk)));
    buffers.lengths[C + i] = to_unit_length(u + dk, dk, 1.f);
  }
  const Mat q{buffers.u, width, 1}, k_transposed{buffers.u + dk, 1, width}, k{buffers.u + dk, width, 1};
  chunk_product(q, n, dk, k_transposed, n, 1.f, buffers.qk, C, false, buffers, Part::kLowerC);
  chunk_product(k, n, dk, k_transposed, n, 1.f, buffers.kk, C, false, buffers, Part::kLowerC);
}

void load_gates(const DeltaNetShape& s, const DeltaNetInput& in, const ChunkTokens& tokens, int64_t head,
                const DeltaBuffers& buffers) {
  const int64_t n = tokens.size();
  float *beta = buffers.gates, *decay = beta + 2 * C, *rest = decay + C;
  const DecaySums sums = buffers.sums();
  const float rate = std::exp(in.a_log[head]);
  const auto at = [&](int64_t i) { return (tokens.begin + i) * s.heads + head; };
  sums.load(n, [&](int64_t i) { return -rate * softplus(in.a[at(i)] + in.dt_bias[head]); });
  for (int64_t i = 0; i < n; ++i) {
    beta[i] = s.beta_scale / (1.f + std::exp(-in.b[at(i)]));
    decay[i] = std::exp(sums.high[i]);
    rest[i] = sums.between(n - 1, i);
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
      const Vec between = sums.between(i, j, lanes);
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
    chunk_product({l + i1 * C + i0, C, 1}, tokens - i1, i1 - i0, {x + i0 * ldx, ldx, 1}, n, -1.f, x + i1 * ldx, ldx,
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
      chunk_product({l + i0 * C, 1, C}, i0, i1 - i0, {x + i0 * ldx, ldx, 1}, n, -1.f, x, ldx, true, buffers);
    }
    i1 = i0;
  }
}

void solve_chunk(const DeltaNetShape& s, int64_t tokens, const float* v, const float* state, float* u, float* w,
                 float* qh, const DeltaBuffers& buffers) {
  const int64_t dk = s.key_dim, dv = s.value_dim, width = delta_width(s);
  const float *beta = buffers.gates, *decay = beta + 2 * C;
  if (state != nullptr) {
    const Mat h{state, dv, 1};
    chunk_product({buffers.u + dk, width, 1}, tokens, dk, h, dv, 1.f, buffers.products, dv, false, buffers);
    if (qh != nullptr) {  // the panels of H are there
      pack({buffers.u, width, 1}, tokens, dk, 1.f, buffers.packed);
      multiply_packed(tokens, dk, dv, qh, dv, false, buffers, Part::kAll);
    }
  }
  for (int64_t i = 0; i < tokens; ++i) {
    each_register(dv, [&](int64_t j, int64_t lanes) {
      Vec error = load_part(v + i * width + j, lanes);
      if (state != nullptr) error -= load_part(buffers.products + i * dv + j, lanes) * decay[i];
      if (w != nullptr) store_part(w + i * dv + j, error, lanes);
      store_part(u + i * dv + j, error * beta[i], lanes);
    });
  }
  solve_lower(buffers.l, tokens, u, dv, dv, buffers);
}

void advance_state(const DeltaNetShape& s, int64_t tokens, const float* u, const float* state, float* next,
                   const DeltaBuffers& buffers) {
  const int64_t dk = s.key_dim, dv = s.value_dim, width = delta_width(s);
  const float *decay = buffers.gates + 2 * C, *rest = buffers.gates + 3 * C;
  if (state != nullptr) {
    each_register(dk * dv, [&](int64_t i, int64_t lanes) {
      store_part(next + i, load_part(state + i, lanes) * decay[tokens - 1], lanes);
    });
  }
  float* weighted = buffers.products;  // [tokens, dk], the keys times what is left of them at the end
  for (int64_t i = 0; i < tokens; ++i) {
    each_register(dk, [&](int64_t j, int64_t lanes) {
      store_part(weighted + i * dk + j, load_part(buffers.u + i * width + dk + j, lanes) * rest[i], lanes);
    });
  }
  chunk_product({weighted, 1, dk}, dk, tokens, {u, dv, 1}, dv, 1.f, next, dv, state != nullptr, buffers);
}

}  // namespace mft::MFT_ISA
