/// Registers the kernels as ExecuTorch ops; argument orders are those of the schemas in mobile_ft/model/ops.

#include <executorch/runtime/kernel/operator_registry.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>

#include "runtime/dispatch/kernels.h"
#include "runtime/ops/arguments.h"
#include "runtime/ops/context.h"
#include "runtime/ops/op_schema.h"

namespace mft {
namespace {

using executorch::runtime::EValue;
using executorch::runtime::Kernel;
using executorch::runtime::KernelRuntimeContext;
using executorch::runtime::Span;

/// First dimension of a two-dimensional tensor: the token count.
int64_t tokens_of(const Arguments& a, size_t i) {
  Arguments::require(a.tensor(i).dim() >= 1);
  return a.tensor(i).size(0);
}

int64_t columns_of(const Arguments& a, size_t i) {
  Arguments::require(a.tensor(i).dim() == 2);
  return a.tensor(i).size(1);
}

int32_t size32(int64_t n) { return static_cast<int32_t>(n); }

/// packed_linear(x, weight, format, out_features, lora_a?, lora_b?, scale) -> y
void packed_linear(const Arguments& a) {
  const int64_t m = tokens_of(a, 0);
  const PackedWeight w = a.weight(1);
  const float* x = a.floats(0, {m, w.cols});
  float* y = a.output(0, {size32(m), size32(w.rows)});
  Lora lora = a.none(4) ? Lora{} : a.lora(4, w);
  const Compute compute = a.op_context().compute;
  if (const HalfLora& half = a.op_context().half_lora; half.has(lora.a)) {
    if (half.off) {
      lora = {};
    } else {
      lora.half_a = half.of(lora.a), lora.half_b = half.of(lora.b), lora.half_scale = lora.scale * half.factor;
    }
  }
  const Scratch scratch = a.scratch(kernels().linear_scratch_bytes(compute, m, w.rows, w.cols, lora.rank));
  PackedInput& packed = a.op_context().packed_input;
  const bool is_packed = packed.holds(compute, x, m, w.cols, scratch.data);
  const Lora* branch = lora.a == nullptr ? nullptr : &lora;
  packed.forget();
  if (kernels().linear_forward(compute, x, m, w, branch, is_packed, y, scratch)) {
    packed.keep(compute, x, m, w.cols, scratch.data);
  }
}

/// packed_linear_backward(dy, weight, format, out_features) -> dx
void packed_linear_backward(const Arguments& a) {
  const int64_t m = tokens_of(a, 0);
  const PackedWeight w = a.weight(1);
  const float* dy = a.floats(0, {m, w.rows});
  float* dx = a.output(0, {size32(m), size32(w.cols)});
  const Compute compute = a.op_context().compute;
  kernels().linear_backward(compute, dy, nullptr, m, w, nullptr, dx, nullptr, nullptr,
                            a.scratch(kernels().linear_scratch_bytes(compute, m, w.rows, w.cols, 0)));
}

/// packed_linear_lora_backward(dy, x, weight, format, out_features, lora_a, lora_b, scale) -> dx, da, db
void packed_linear_lora_backward(const Arguments& a) {
  const int64_t m = tokens_of(a, 0);
  const PackedWeight w = a.weight(2);
  const Lora lora = a.lora(5, w);
  const float* dy = a.floats(0, {m, w.rows});
  const float* x = a.floats(1, {m, w.cols});
  float* dx = a.output(0, {size32(m), size32(w.cols)});
  float* a_gradient = a.output(1, {size32(lora.rank), size32(w.cols)});
  float* da = a.op_context().lora_a_gradient ? a_gradient : nullptr;
  float* db = a.output(2, {size32(w.rows), size32(lora.rank)});
  const Compute compute = a.op_context().compute;
  kernels().linear_backward(compute, dy, x, m, w, &lora, dx, da, db,
                            a.scratch(kernels().linear_scratch_bytes(compute, m, w.rows, w.cols, lora.rank)));
}

/// How many groups of the size of weight `i` a row of x, of `d` numbers, holds.
int64_t norm_groups(const Arguments& a, size_t i, int64_t d) {
  const int64_t n = tokens_of(a, i);
  Arguments::require(n > 0 && d % n == 0);
  return d / n;
}

/// rms_norm(x, weight, eps) -> y, rstd
void rms_norm_op(const Arguments& a) {
  const int64_t t = tokens_of(a, 0), d = columns_of(a, 0), groups = norm_groups(a, 1, d);
  kernels().rms_norm(a.floats(0, {t, d}), a.floats(1, {d / groups}), t * groups, d / groups, a.real(2),
                     a.output(0, {size32(t), size32(d)}), a.output(1, {size32(t), size32(groups)}));
}

/// rms_norm_backward(dy, x, weight, rstd) -> dx
void rms_norm_backward_op(const Arguments& a) {
  const int64_t t = tokens_of(a, 0), d = columns_of(a, 0), groups = norm_groups(a, 2, d);
  kernels().rms_norm_backward(a.floats(0, {t, d}), a.floats(1, {t, d}), a.floats(2, {d / groups}),
                              a.floats(3, {t, groups}), t * groups, d / groups, a.output(0, {size32(t), size32(d)}));
}

/// ms_rms_norm(x, eps) -> z, rstd
void ms_rms_norm_op(const Arguments& a) {
  const int64_t t = tokens_of(a, 0), d = columns_of(a, 0);
  kernels().ms_rms_norm(a.floats(0, {t, d}), t, d, a.real(1), a.output(0, {size32(t), size32(d)}),
                        a.output(1, {size32(t)}));
}

/// ms_rms_norm_backward(dz, z, rstd) -> dx
void ms_rms_norm_backward_op(const Arguments& a) {
  const int64_t t = tokens_of(a, 0), d = columns_of(a, 0);
  kernels().ms_rms_norm_backward(a.floats(0, {t, d}), a.floats(1, {t, d}), a.floats(2, {t}), t, d,
                                 a.output(0, {size32(t), size32(d)}));
}

/// affine(z, weight) -> y
void affine_op(const Arguments& a) {
  const int64_t t = tokens_of(a, 0), d = columns_of(a, 0);
  kernels().affine(a.floats(0, {t, d}), a.floats(1, {d}), t, d, a.output(0, {size32(t), size32(d)}));
}

/// scale(x, factor) -> y
void scale_op(const Arguments& a) {
  const int64_t t = tokens_of(a, 0), d = columns_of(a, 0);
  const float* x = a.floats(0, {t, d});
  const float factor = a.real(1);
  float* y = a.output(0, {size32(t), size32(d)});
  for (int64_t i = 0; i < t * d; ++i) y[i] = factor * x[i];
}

/// rope(x, positions, inv_freq, heads, inverse, interleaved, factor) -> y
void rope_op(const Arguments& a) {
  RopeShape s{};
  s.t = tokens_of(a, 0);
  s.heads = a.integer(3);
  s.half = tokens_of(a, 2);
  const int64_t columns = columns_of(a, 0);
  Arguments::require(s.heads > 0 && columns % s.heads == 0 && s.half <= columns / s.heads / 2);
  s.dim = columns / s.heads;
  s.inverse = a.boolean(4);
  s.interleaved = a.has(5) && a.boolean(5);
  s.factor = a.has(6) ? a.real(6) : 1.f;
  kernels().rope(s, a.floats(0, {s.t, columns}), a.integers(1, {s.t}), a.floats(2, {s.half}),
                 a.output(0, {size32(s.t), size32(columns)}), a.scratch(kernels().rope_scratch_bytes(s.half)));
}

/// swiglu, geglu(gate, up) -> y
template <Glu kind>
void glu_op(const Arguments& a) {
  const int64_t t = tokens_of(a, 0), d = columns_of(a, 0);
  kernels().glu(kind, a.floats(0, {t, d}), a.floats(1, {t, d}), t * d, a.output(0, {size32(t), size32(d)}));
}

/// swiglu_backward, geglu_backward(dy, gate, up) -> dgate, dup
template <Glu kind>
void glu_backward_op(const Arguments& a) {
  const int64_t t = tokens_of(a, 0), d = columns_of(a, 0);
  kernels().glu_backward(kind, a.floats(0, {t, d}), a.floats(1, {t, d}), a.floats(2, {t, d}), t * d,
                         a.output(0, {size32(t), size32(d)}), a.output(1, {size32(t), size32(d)}));
}

/// swiglu_2bit, geglu_2bit(gate, up) -> y, codes
template <Glu kind>
void glu_2bit_op(const Arguments& a) {
  const int64_t t = tokens_of(a, 0), d = columns_of(a, 0);
  kernels().glu_2bit(kind, a.floats(0, {t, d}), a.floats(1, {t, d}), t, d, a.output(0, {size32(t), size32(d)}),
                     a.output_bytes(1, {size32(t), size32(glu_2bit_code_bytes(d))}));
}

/// swiglu_2bit_backward, geglu_2bit_backward(dy, up, y, codes) -> dgate, dup
template <Glu kind>
void glu_2bit_backward_op(const Arguments& a) {
  const int64_t t = tokens_of(a, 0), d = columns_of(a, 0);
  kernels().glu_2bit_backward(kind, a.floats(0, {t, d}), a.floats(1, {t, d}), a.floats(2, {t, d}),
                              a.bytes(3, {t, glu_2bit_code_bytes(d)}), t, d, a.output(0, {size32(t), size32(d)}),
                              a.output(1, {size32(t), size32(d)}));
}

/// Shape of attention from q at `q`, and from `heads` on: heads, kv_heads, window, scale, softcap, sinks.
AttentionShape attention_shape(const Arguments& a, size_t q, size_t heads) {
  AttentionShape shape{};
  shape.t = tokens_of(a, q);
  shape.heads = a.integer(heads);
  shape.kv_heads = a.integer(heads + 1);
  shape.window = a.integer(heads + 2);
  Arguments::require(shape.window >= 0 && shape.kv_heads > 0 && shape.heads > 0 && shape.heads % shape.kv_heads == 0 &&
                     columns_of(a, q) % shape.heads == 0);
  shape.dim = columns_of(a, q) / shape.heads;
  shape.scale = a.has(heads + 3) ? a.real(heads + 3) : 1.0f / std::sqrt(static_cast<float>(shape.dim));
  shape.softcap = a.has(heads + 4) ? a.real(heads + 4) : 0.f;
  Arguments::require(shape.softcap >= 0);
  shape.sinks = a.none(heads + 5) ? nullptr : a.floats(heads + 5, {shape.heads});
  return shape;
}

/// Every position must lie within its sequence, or a query would look before the first key.
const int64_t* row_positions(const Arguments& a, size_t i, int64_t t) {
  const int64_t* positions = a.integers(i, {t});
  for (int64_t j = 0; j < t; ++j) Arguments::require(positions[j] >= 0 && positions[j] <= j);
  return positions;
}

/// attention(q, k, v, positions, heads, kv_heads, window, scale, softcap, sinks?) -> o, lse
void attention_op(const Arguments& a) {
  const AttentionShape s = attention_shape(a, 0, 4);
  const int64_t queries = s.heads * s.dim, keys = s.kv_heads * s.dim;
  const Compute compute = a.op_context().compute;
  kernels().attention_forward(compute, s, a.floats(0, {s.t, queries}), a.floats(1, {s.t, keys}),
                              a.floats(2, {s.t, keys}), row_positions(a, 3, s.t),
                              a.output(0, {size32(s.t), size32(queries)}), a.output(1, {size32(s.heads), size32(s.t)}),
                              a.scratch(kernels().attention_scratch_bytes(compute, s)));
}

/// attention_backward(do, q, k, v, o, lse, positions, heads, kv_heads, window, scale, softcap) -> dq, dk, dv
void attention_backward_op(const Arguments& a) {
  const AttentionShape s = attention_shape(a, 1, 7);
  const int64_t queries = s.heads * s.dim, keys = s.kv_heads * s.dim;
  const Compute compute = a.op_context().compute;
  kernels().attention_backward(
      compute, s, a.floats(0, {s.t, queries}), a.floats(1, {s.t, queries}), a.floats(2, {s.t, keys}),
      a.floats(3, {s.t, keys}), a.floats(4, {s.t, queries}), a.floats(5, {s.heads, s.t}), row_positions(a, 6, s.t),
      a.output(0, {size32(s.t), size32(queries)}), a.output(1, {size32(s.t), size32(keys)}),
      a.output(2, {size32(s.t), size32(keys)}), a.scratch(kernels().attention_scratch_bytes(compute, s)));
}

/// attention_decode(q, k, v, k_cache, v_cache, positions, heads, kv_heads, window, scale, softcap, sinks?) -> o
/// The new keys and values are stored in the caches, whose rows have the context's format, unless they are there: then
/// k and v are the address of their first row.
void attention_decode_op(const Arguments& a) {
  const AttentionShape s = attention_shape(a, 0, 6);
  const int64_t queries = s.heads * s.dim, keys = s.kv_heads * s.dim, capacity = tokens_of(a, 3);
  const int64_t past = a.integers(5, {s.t})[0];
  Arguments::require(s.t > 0 && past >= 0 && past <= capacity - s.t);
  const KvFormat format = a.op_context().kv_format;
  const int64_t row = kv_row_bytes(format, s.kv_heads, s.dim);
  Arguments::require(format == KvFormat::kFloat32 || row == a.op_context().kv_row_bytes);
  const uint8_t* rows[2];
  for (const size_t i : {0, 1}) {
    const float* x = a.floats(1 + i, {s.t, keys});
    rows[i] = reinterpret_cast<const uint8_t*>(a.floats(3 + i, {capacity, keys}));
    // The program cannot say that the op writes to its input.
    uint8_t* to = const_cast<uint8_t*>(rows[i]) + past * row;
    if (reinterpret_cast<const uint8_t*>(x) != to) kernels().kv_store(format, x, s.t, s.kv_heads, s.dim, to);
  }
  kernels().attention_decode(s, a.floats(0, {s.t, queries}), {rows[0], rows[1], format}, past,
                             a.output(0, {size32(s.t), size32(queries)}),
                             a.scratch(kernels().attention_scratch_bytes(Compute::kFloat32, s)));
}

/// Shape of a short convolution from bcx at `bcx`, its taps behind it.
ShortConvShape short_conv_shape(const Arguments& a, size_t bcx) {
  return {tokens_of(a, bcx), columns_of(a, bcx + 1), tokens_of(a, bcx + 1)};
}

/// short_conv(bcx, taps, positions) -> y
void short_conv_op(const Arguments& a) {
  const ShortConvShape s = short_conv_shape(a, 0);
  kernels().short_conv(s, a.floats(0, {s.t, 3 * s.d}), a.floats(1, {s.taps, s.d}), row_positions(a, 2, s.t),
                       a.output(0, {size32(s.t), size32(s.d)}));
}

/// short_conv_backward(dy, bcx, taps, positions) -> dbcx
void short_conv_backward_op(const Arguments& a) {
  const ShortConvShape s = short_conv_shape(a, 1);
  kernels().short_conv_backward(s, a.floats(0, {s.t, s.d}), a.floats(1, {s.t, 3 * s.d}), a.floats(2, {s.taps, s.d}),
                                row_positions(a, 3, s.t), a.output(0, {size32(s.t), size32(3 * s.d)}));
}

/// short_conv_decode(bcx, taps, state, positions) -> y, next state
void short_conv_decode_op(const Arguments& a) {
  const ShortConvShape s = short_conv_shape(a, 0);
  Arguments::require(s.taps > 0);
  kernels().short_conv_decode(s, a.floats(0, {s.t, 3 * s.d}), a.floats(1, {s.taps, s.d}),
                              a.floats(2, {s.taps - 1, s.d}), a.integers(3, {s.t}),
                              a.output(0, {size32(s.t), size32(s.d)}), a.output(1, {size32(s.taps - 1), size32(s.d)}));
}

/// Shape of a delta net whose inputs begin at `i`, with its numbers behind the positions at `p`.
DeltaNetShape delta_net_shape(const Arguments& a, size_t i, size_t p) {
  DeltaNetShape s{};
  s.t = tokens_of(a, i);
  s.heads = columns_of(a, i + 1);
  s.taps = tokens_of(a, i + 3);
  s.key_heads = a.integer(p + 1);
  s.key_dim = a.integer(p + 2);
  s.beta_scale = a.real(p + 3);
  const int64_t columns = columns_of(a, i);
  Arguments::require(s.key_heads > 0 && s.key_heads <= columns && s.key_dim > 0 && s.key_dim <= columns &&
                     s.heads > 0 && s.heads % s.key_heads == 0 && s.taps > 0 && s.taps <= kMostDeltaTaps &&
                     s.beta_scale > 0);
  const int64_t values = columns - 2 * s.keys();
  Arguments::require(values > 0 && values % s.heads == 0);
  s.value_dim = values / s.heads;
  return s;
}

/// The inputs from `i` on, without the positions.
DeltaNetInput delta_net_input(const Arguments& a, size_t i, const DeltaNetShape& s) {
  return {a.floats(i, {s.t, s.channels()}),
          a.floats(i + 1, {s.t, s.heads}),
          a.floats(i + 2, {s.t, s.heads}),
          a.floats(i + 3, {s.taps, s.channels()}),
          a.floats(i + 4, {s.heads}),
          a.floats(i + 5, {s.heads}),
          nullptr};
}

/// delta_net(qkv, b, a, taps, a_log, dt_bias, positions, key_heads, key_dim, beta_scale) -> o
void delta_net_op(const Arguments& a) {
  const DeltaNetShape s = delta_net_shape(a, 0, 6);
  DeltaNetInput in = delta_net_input(a, 0, s);
  in.positions = row_positions(a, 6, s.t);
  kernels().delta_net(s, in, a.output(0, {size32(s.t), size32(s.values())}),
                      a.scratch(kernels().delta_net_scratch_bytes(s)));
}

/// delta_net_backward(do, qkv, b, a, taps, a_log, dt_bias, positions, key_heads, key_dim, beta_scale) -> dqkv, db, da
void delta_net_backward_op(const Arguments& a) {
  const DeltaNetShape s = delta_net_shape(a, 1, 7);
  DeltaNetInput in = delta_net_input(a, 1, s);
  in.positions = row_positions(a, 7, s.t);
  kernels().delta_net_backward(s, in, a.floats(0, {s.t, s.values()}), a.output(0, {size32(s.t), size32(s.channels())}),
                               a.output(1, {size32(s.t), size32(s.heads)}), a.output(2, {size32(s.t), size32(s.heads)}),
                               a.scratch(kernels().delta_net_scratch_bytes(s)));
}

/// delta_net_decode(qkv, b, a, taps, a_log, dt_bias, state, positions, key_heads, key_dim, beta_scale) -> o, next state
void delta_net_decode_op(const Arguments& a) {
  const DeltaNetShape s = delta_net_shape(a, 0, 7);
  DeltaNetInput in = delta_net_input(a, 0, s);
  in.positions = a.integers(7, {s.t});
  const int64_t size = (s.taps - 1) * s.channels() + s.key_dim * s.values();
  kernels().delta_net_decode(s, in, a.floats(6, {size}), a.output(0, {size32(s.t), size32(s.values())}),
                             a.output(1, {size32(size)}), a.scratch(kernels().delta_net_scratch_bytes(s)));
}

/// Shape of a mixture of experts whose arguments begin at `i`.
ExpertsShape experts_shape(const Arguments& a, size_t i) {
  ExpertsShape s{tokens_of(a, i),   columns_of(a, i), 0, columns_of(a, i + 1), a.integer(i + 9), a.boolean(i + 10),
                 a.boolean(i + 11), a.real(i + 12),   0};
  const int64_t rows = a.integer(i + 5);
  Arguments::require(s.hidden > 0 && s.hidden % kPanelRows == 0 && s.experts > 0 && s.top_k > 0 &&
                     s.top_k <= s.experts && rows > 0 && rows % (2 * s.experts) == 0 &&
                     a.integer(i + 8) == s.experts * s.hidden);
  s.inner = rows / (2 * s.experts);
  Arguments::require(s.inner % kPanelRows == 0);
  if (!a.none(i + 13)) {
    s.rank = tokens_of(a, i + 13) / s.experts;
    Arguments::require(s.rank > 0);
  }
  return s;
}

ExpertsInput experts_input(const Arguments& a, size_t i, const ExpertsShape& s) {
  ExpertsInput in{a.floats(i, {s.t, s.hidden}), a.floats(i + 1, {s.t, s.experts}),
                  a.none(i + 2) ? nullptr : a.floats(i + 2, {s.experts}), a.weight(i + 3), a.weight(i + 6)};
  Arguments::require(in.gate_up.cols == s.hidden && in.down.cols == s.inner);
  if (s.rank > 0) {
    const int64_t ranks = s.experts * s.rank;
    in.gate_up_lora = {a.floats(i + 13, {ranks, s.hidden}), a.floats(i + 14, {2 * s.inner, ranks})};
    in.down_lora = {a.floats(i + 15, {ranks, s.inner}), a.floats(i + 16, {s.hidden, ranks})};
    in.lora_scale = a.real(i + 17);
  }
  return in;
}

/// experts(x, logits, bias?, gate_up, format, rows, down, format, rows, top_k, sigmoid, normalize, scale,
/// A and B of gate_up?, A and B of down?, their scale) -> y
void experts_op(const Arguments& a) {
  const ExpertsShape s = experts_shape(a, 0);
  const Compute compute = a.op_context().compute;
  kernels().experts_forward(compute, s, experts_input(a, 0, s), a.output(0, {size32(s.t), size32(s.hidden)}),
                            a.scratch(kernels().experts_scratch_bytes(compute, s)));
}

/// experts_backward(dy, x, logits, ...) -> dx, dlogits, without LoRA;
/// experts_lora_backward(dy, x, logits, ...) -> dx, dlogits, and the gradients of A and B of both matrices
template <bool kLora>
void experts_backward_op(const Arguments& a) {
  const ExpertsShape s = experts_shape(a, 1);
  const Compute compute = a.op_context().compute;
  Arguments::require((s.rank > 0) == kLora);
  ExpertsLoraGradients gate_up{}, down{};
  if constexpr (kLora) {
    const auto ranks = size32(s.experts * s.rank);
    gate_up = {a.output(2, {ranks, size32(s.hidden)}), a.output(3, {size32(2 * s.inner), ranks})};
    down = {a.output(4, {ranks, size32(s.inner)}), a.output(5, {size32(s.hidden), ranks})};
    if (!a.op_context().lora_a_gradient) gate_up.a = down.a = nullptr;
  }
  kernels().experts_backward(compute, s, experts_input(a, 1, s), a.floats(0, {s.t, s.hidden}),
                             a.output(0, {size32(s.t), size32(s.hidden)}),
                             a.output(1, {size32(s.t), size32(s.experts)}), gate_up, down,
                             a.scratch(kernels().experts_scratch_bytes(compute, s)));
}

/// Shape of a Mamba-2 layer whose inputs begin at `i`, with its numbers behind the positions at `p`.
Mamba2Shape mamba2_shape(const Arguments& a, size_t i, size_t p) {
  Mamba2Shape s{};
  s.t = tokens_of(a, i);
  s.heads = columns_of(a, i + 1);
  s.taps = tokens_of(a, i + 2);
  s.groups = a.integer(p + 1);
  s.state = a.integer(p + 2);
  const int64_t columns = columns_of(a, i);
  Arguments::require(s.groups > 0 && s.groups <= columns && s.state > 0 && s.state <= columns && s.heads > 0 &&
                     s.heads % s.groups == 0 && s.taps > 0 && s.taps <= kMostMamba2Taps);
  const int64_t values = columns - 2 * s.groups * s.state;
  Arguments::require(values > 0 && values % s.heads == 0);
  s.dim = values / s.heads;
  return s;
}

/// The inputs from `i` on, without the positions.
Mamba2Input mamba2_input(const Arguments& a, size_t i, const Mamba2Shape& s) {
  return {a.floats(i, {s.t, s.channels()}),
          a.floats(i + 1, {s.t, s.heads}),
          a.floats(i + 2, {s.taps, s.channels()}),
          a.floats(i + 3, {s.channels()}),
          a.floats(i + 4, {s.heads}),
          a.floats(i + 5, {s.heads}),
          a.floats(i + 6, {s.heads}),
          nullptr};
}

/// mamba2(xbc, dt, taps, conv_bias, a_log, dt_bias, skip, positions, groups, state_size) -> y
void mamba2_op(const Arguments& a) {
  const Mamba2Shape s = mamba2_shape(a, 0, 7);
  Mamba2Input in = mamba2_input(a, 0, s);
  in.positions = row_positions(a, 7, s.t);
  kernels().mamba2(s, in, a.output(0, {size32(s.t), size32(s.values())}), a.scratch(kernels().mamba2_scratch_bytes(s)));
}

/// mamba2_backward(dy, xbc, dt, taps, conv_bias, a_log, dt_bias, skip, positions, groups, state_size) -> dxbc, ddt
void mamba2_backward_op(const Arguments& a) {
  const Mamba2Shape s = mamba2_shape(a, 1, 8);
  Mamba2Input in = mamba2_input(a, 1, s);
  in.positions = row_positions(a, 8, s.t);
  kernels().mamba2_backward(s, in, a.floats(0, {s.t, s.values()}), a.output(0, {size32(s.t), size32(s.channels())}),
                            a.output(1, {size32(s.t), size32(s.heads)}), a.scratch(kernels().mamba2_scratch_bytes(s)));
}

/// mamba2_decode(xbc, dt, taps, conv_bias, a_log, dt_bias, skip, state, positions, groups, state_size) -> y, next state
void mamba2_decode_op(const Arguments& a) {
  const Mamba2Shape s = mamba2_shape(a, 0, 8);
  Mamba2Input in = mamba2_input(a, 0, s);
  in.positions = a.integers(8, {s.t});
  const int64_t size = (s.taps - 1) * s.channels() + s.state * s.values();
  kernels().mamba2_decode(s, in, a.floats(7, {size}), a.output(0, {size32(s.t), size32(s.values())}),
                          a.output(1, {size32(size)}), a.scratch(kernels().mamba2_scratch_bytes(s)));
}

/// packed_embedding(tokens, table, format, rows, scale) -> x
void packed_embedding(const Arguments& a) {
  const int64_t t = tokens_of(a, 0);
  const PackedWeight table = a.weight(1);
  Arguments::require(
      kernels().embedding(a.integers(0, {t}), t, table, a.real(4), a.output(0, {size32(t), size32(table.cols)})));
}

const int64_t* valid_targets(const Arguments& a, size_t i, int64_t t, int64_t vocabulary) {
  const int64_t* targets = a.integers(i, {t});
  for (int64_t j = 0; j < t; ++j) {
    Arguments::require(targets[j] == -100 || (targets[j] >= 0 && targets[j] < vocabulary));
  }
  return targets;
}

/// linear_cross_entropy(x, weight, format, rows, targets, softcap) -> losses, dx; the `_loss` form gives no dx
template <bool kGradient>
void linear_cross_entropy_op(const Arguments& a) {
  const int64_t t = tokens_of(a, 0);
  const PackedWeight w = a.weight(1);
  float* losses = a.output(0, {size32(t)});
  float* dx = kGradient ? a.output(1, {size32(t), size32(w.cols)}) : nullptr;
  const Compute compute = a.op_context().compute;
  const float softcap = a.has(5) ? a.real(5) : 0.f;
  Arguments::require(softcap >= 0);
  kernels().linear_cross_entropy(compute, a.floats(0, {t, w.cols}), t, w, valid_targets(a, 4, t, w.rows), softcap,
                                 losses, dx,
                                 a.scratch(kernels().linear_cross_entropy_scratch_bytes(compute, t, w.rows, w.cols)));
}

/// add(x, y) -> z
void add_op(const Arguments& a) {
  const int64_t t = tokens_of(a, 0), d = columns_of(a, 0);
  kernels().add(a.floats(0, {t, d}), a.floats(1, {t, d}), t * d, a.output(0, {size32(t), size32(d)}));
}

/// add_bias(x, bias) -> y
void add_bias_op(const Arguments& a) {
  const int64_t t = tokens_of(a, 0), d = columns_of(a, 0);
  kernels().add_bias(a.floats(0, {t, d}), a.floats(1, {d}), t, d, a.output(0, {size32(t), size32(d)}));
}

/// split(x, groups, first) -> a, b
void split_op(const Arguments& a) {
  const int64_t t = tokens_of(a, 0), n = columns_of(a, 0), groups = a.integer(1), first = a.integer(2);
  Arguments::require(groups > 0 && n % groups == 0 && first > 0 && first < n / groups);
  kernels().split(a.floats(0, {t, n}), t * groups, n / groups, first, a.output(0, {size32(t), size32(groups * first)}),
                  a.output(1, {size32(t), size32(n - groups * first)}));
}

/// join(a, b, groups) -> x
void join_op(const Arguments& a) {
  const int64_t t = tokens_of(a, 0), first = columns_of(a, 0), rest = columns_of(a, 1), groups = a.integer(2);
  Arguments::require(groups > 0 && first % groups == 0 && rest % groups == 0);
  kernels().join(a.floats(0, {t, first}), a.floats(1, {t, rest}), t * groups, first / groups, rest / groups,
                 a.output(0, {size32(t), size32(first + rest)}));
}

/// Columns of x that share a gate, with the gate at `gate` and x of `n` columns.
int64_t gate_width(const Arguments& a, size_t gate, int64_t n) {
  const int64_t gates = columns_of(a, gate);
  Arguments::require(gates > 0 && n % gates == 0);
  return n / gates;
}

/// sigmoid_gate(x, gate) -> y
void sigmoid_gate_op(const Arguments& a) {
  const int64_t t = tokens_of(a, 0), n = columns_of(a, 0), width = gate_width(a, 1, n);
  kernels().sigmoid_gate(a.floats(0, {t, n}), a.floats(1, {t, n / width}), t * n / width, width,
                         a.output(0, {size32(t), size32(n)}));
}

/// sigmoid_gate_backward(dy, x, gate) -> dx, dgate
void sigmoid_gate_backward_op(const Arguments& a) {
  const int64_t t = tokens_of(a, 0), n = columns_of(a, 0), width = gate_width(a, 2, n);
  kernels().sigmoid_gate_backward(a.floats(0, {t, n}), a.floats(1, {t, n}), a.floats(2, {t, n / width}), t * n / width,
                                  width, a.output(0, {size32(t), size32(n)}),
                                  a.output(1, {size32(t), size32(n / width)}));
}

/// relu2(x) -> y
void relu2_op(const Arguments& a) {
  const int64_t t = tokens_of(a, 0), d = columns_of(a, 0);
  kernels().relu2(a.floats(0, {t, d}), t * d, a.output(0, {size32(t), size32(d)}));
}

/// relu2_backward(dy, x) -> dx
void relu2_backward_op(const Arguments& a) {
  const int64_t t = tokens_of(a, 0), d = columns_of(a, 0);
  kernels().relu2_backward(a.floats(0, {t, d}), a.floats(1, {t, d}), t * d, a.output(0, {size32(t), size32(d)}));
}

/// softcap(x, cap) -> y
void softcap_op(const Arguments& a) {
  const int64_t t = tokens_of(a, 0), d = columns_of(a, 0);
  Arguments::require(a.real(1) > 0);
  kernels().softcap(a.floats(0, {t, d}), t * d, a.real(1), a.output(0, {size32(t), size32(d)}));
}

struct Op {
  const char* name;
  OpSchema signature;
  void (*kernel)(const Arguments&);
};

constexpr Op kOps[] = {
    {"mobile_ft::add.out", {2, 1}, add_op},
    {"mobile_ft::add_bias.out", {2, 1}, add_bias_op},
    {"mobile_ft::packed_linear.out", {7, 1}, packed_linear},
    {"mobile_ft::packed_linear_backward.out", {4, 1}, packed_linear_backward},
    {"mobile_ft::packed_linear_lora_backward.out", {8, 3}, packed_linear_lora_backward},
    {"mobile_ft::rms_norm.out", {3, 2}, rms_norm_op},
    {"mobile_ft::rms_norm_backward.out", {4, 1}, rms_norm_backward_op},
    {"mobile_ft::ms_rms_norm.out", {2, 2}, ms_rms_norm_op},
    {"mobile_ft::ms_rms_norm_backward.out", {3, 1}, ms_rms_norm_backward_op},
    {"mobile_ft::affine.out", {2, 1}, affine_op},
    {"mobile_ft::rope.out", {7, 1, 2}, rope_op},
    {"mobile_ft::swiglu.out", {2, 1}, glu_op<Glu::kSwiglu>},
    {"mobile_ft::swiglu_backward.out", {3, 2}, glu_backward_op<Glu::kSwiglu>},
    {"mobile_ft::swiglu_2bit.out", {2, 2}, glu_2bit_op<Glu::kSwiglu>},
    {"mobile_ft::swiglu_2bit_backward.out", {4, 2}, glu_2bit_backward_op<Glu::kSwiglu>},
    {"mobile_ft::geglu.out", {2, 1}, glu_op<Glu::kGeglu>},
    {"mobile_ft::geglu_backward.out", {3, 2}, glu_backward_op<Glu::kGeglu>},
    {"mobile_ft::geglu_2bit.out", {2, 2}, glu_2bit_op<Glu::kGeglu>},
    {"mobile_ft::geglu_2bit_backward.out", {4, 2}, glu_2bit_backward_op<Glu::kGeglu>},
    {"mobile_ft::attention.out", {10, 2, 3}, attention_op},
    {"mobile_ft::attention_backward.out", {12, 3, 2}, attention_backward_op},
    {"mobile_ft::attention_decode.out", {12, 1, 3}, attention_decode_op},
    {"mobile_ft::short_conv.out", {3, 1}, short_conv_op},
    {"mobile_ft::short_conv_backward.out", {4, 1}, short_conv_backward_op},
    {"mobile_ft::short_conv_decode.out", {4, 2}, short_conv_decode_op},
    {"mobile_ft::delta_net.out", {10, 1}, delta_net_op},
    {"mobile_ft::delta_net_backward.out", {11, 3}, delta_net_backward_op},
    {"mobile_ft::delta_net_decode.out", {11, 2}, delta_net_decode_op},
    {"mobile_ft::experts.out", {18, 1, 5}, experts_op},
    {"mobile_ft::scale.out", {2, 1}, scale_op},
    {"mobile_ft::experts_backward.out", {14, 2}, experts_backward_op<false>},
    {"mobile_ft::experts_lora_backward.out", {19, 6}, experts_backward_op<true>},
    {"mobile_ft::mamba2.out", {10, 1}, mamba2_op},
    {"mobile_ft::mamba2_backward.out", {11, 2}, mamba2_backward_op},
    {"mobile_ft::mamba2_decode.out", {11, 2}, mamba2_decode_op},
    {"mobile_ft::split.out", {3, 2}, split_op},
    {"mobile_ft::join.out", {3, 1}, join_op},
    {"mobile_ft::sigmoid_gate.out", {2, 1}, sigmoid_gate_op},
    {"mobile_ft::sigmoid_gate_backward.out", {3, 2}, sigmoid_gate_backward_op},
    {"mobile_ft::relu2.out", {1, 1}, relu2_op},
    {"mobile_ft::relu2_backward.out", {2, 1}, relu2_backward_op},
    {"mobile_ft::softcap.out", {2, 1}, softcap_op},
    {"mobile_ft::packed_embedding.out", {5, 1}, packed_embedding},
    {"mobile_ft::linear_cross_entropy.out", {6, 2, 1}, linear_cross_entropy_op<true>},
    {"mobile_ft::linear_cross_entropy_loss.out", {6, 1, 1}, linear_cross_entropy_op<false>},
};
constexpr size_t kCount = std::size(kOps);

template <size_t I>
void boxed(KernelRuntimeContext& context, Span<EValue*> stack) {
  OpContext* op_context = CurrentContext::get();
  if (op_context == nullptr) return context.fail(executorch::runtime::Error::InvalidState);
  const auto start = std::chrono::steady_clock::now();
  if (kOps[I].kernel != packed_linear) op_context->packed_input.forget();
  try {
    kOps[I].kernel(Arguments(context, *op_context, kOps[I].signature, stack));
  } catch (const Arguments::BadArguments&) {
    context.fail(executorch::runtime::Error::InvalidArgument);
  }
  OpCounter& counter = op_context->counters[I];
  ++counter.calls;
  counter.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <size_t... I>
executorch::runtime::Error register_all(std::index_sequence<I...>) {
  const Kernel kernels[] = {Kernel(kOps[I].name, boxed<I>)...};
  return executorch::runtime::register_kernels({kernels, kCount});
}

const auto registered = register_all(std::make_index_sequence<kCount>());

}  // namespace

const OpSchema* find_op(std::string_view name) {
  const auto found = std::find_if(std::begin(kOps), std::end(kOps), [&](const Op& op) { return name == op.name; });
  return found == std::end(kOps) ? nullptr : &found->signature;
}

OpContext::OpContext() {
  for (const Op& op : kOps) counters.push_back({op.name});
}

}  // namespace mft
