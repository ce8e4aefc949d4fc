/// The kernels on numpy arrays, for tests and benchmarks. Arguments are checked like those of the ops; results are new
/// arrays, and scratch is kept between calls so that its allocation is no part of a timing.

#include "runtime/python/kernels.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/dispatch/kernels.h"
#include "runtime/formats/format.h"
#include "runtime/platform/scratch.h"
#include "runtime/platform/thread_pool.h"
#include "runtime/platform/threads.h"

namespace nb = nanobind;

namespace mft {
namespace {

template <typename T, size_t kDims>
using Input = nb::ndarray<const T, nb::ndim<kDims>, nb::c_contig, nb::device::cpu>;
using Vector = Input<float, 1>;
using Matrix = Input<float, 2>;
using Integers = Input<int64_t, 1>;
using Bytes = Input<uint8_t, 3>;
using Output = nb::ndarray<nb::numpy, float>;

template <typename A>
int64_t size(const A& array, size_t dim) {
  return static_cast<int64_t>(array.shape(dim));
}

template <typename A>
void check_shape(const char* name, const A& array, std::initializer_list<int64_t> shape) {
  size_t dim = 0;
  for (int64_t n : shape) {
    if (size(array, dim) != n) fail(name, ": dimension ", dim, " is ", array.shape(dim), "; must be ", n);
    ++dim;
  }
}

/// A new array, 64-byte aligned as torch's are.
Output output(std::initializer_list<int64_t> shape) {
  std::vector<size_t> sizes(shape.begin(), shape.end());
  size_t bytes = sizeof(float);
  for (size_t n : sizes) bytes *= n;
  void* p = std::aligned_alloc(kScratchAlign, static_cast<size_t>(round_up(static_cast<int64_t>(bytes), 64)));
  if (p == nullptr) throw std::bad_alloc();
  return Output(p, sizes.size(), sizes.data(), nb::capsule(p, [](void* q) noexcept { std::free(q); }));
}

Scratch scratch(size_t bytes) {
  static thread_local std::vector<std::byte> memory;
  if (memory.size() < bytes) memory.resize(bytes);
  return {memory.data(), bytes};
}

int64_t rows_of(const char* name, const Matrix& x) {
  if (size(x, 0) < 1) fail(name, ": empty");
  return size(x, 0);
}

/// A packed weight and the array it lies in.
struct Weight {
  Bytes bytes;
  PackedWeight packed;

  Weight(Bytes data, const std::string& format, int64_t rows) : bytes(std::move(data)) {
    packed = {bytes.data(), {}, rows, 0};
    if (!parse_format(format, &packed.format)) fail("format ", format, " is not known");
    packed.cols = size(bytes, 1) * packed.format.group;
    if (rows < 1 || packed.cols < 1) fail("weight: empty");
    check_shape("weight", bytes, {ceil_div(rows, kPanelRows), size(bytes, 1), int64_t(packed.format.block_bytes())});
  }
};

/// The LoRA branch of `w`, checked.
Lora lora_of(const PackedWeight& w, const Matrix& a, const Matrix& b, float scale) {
  const int64_t rank = rows_of("lora_a", a);
  check_shape("lora_a", a, {rank, w.cols});
  check_shape("lora_b", b, {w.rows, rank});
  return {a.data(), b.data(), rank, scale};
}

/// Bytes of one block of every format, by name.
std::map<std::string, size_t> formats() {
  std::map<std::string, size_t> sizes;
  for (const std::string& name : format_names()) {
    Format format{};
    if (parse_format(name, &format)) sizes[name] = format.block_bytes();
  }
  return sizes;
}

Compute compute_of(const std::string& name) {
  if (name == "float32") return Compute::kFloat32;
  if (name == "int8") return Compute::kInt8;
  if (name == "int15") return Compute::kInt15;
  fail("compute ", name, ": must be float32, int8 or int15");
}

// --- Linear layers -----------------------------------------------------------------------------

Output linear_forward_array(const Matrix& x, const Weight& weight, const std::optional<Matrix>& a,
                            const std::optional<Matrix>& b, float scale, const std::string& compute) {
  const PackedWeight& w = weight.packed;
  const int64_t m = rows_of("x", x);
  check_shape("x", x, {m, w.cols});
  Output y = output({m, w.rows});
  if (a.has_value() != b.has_value()) fail("set both lora_a and lora_b, or neither");
  const Lora lora = a ? lora_of(w, *a, *b, scale) : Lora{};
  kernels().linear_forward(compute_of(compute), x.data(), m, w, a ? &lora : nullptr, false, y.data(),
                           scratch(kernels().linear_scratch_bytes(compute_of(compute), m, w.rows, w.cols, lora.rank)));
  return y;
}

Output linear_backward_array(const Matrix& dy, const Weight& weight, const std::string& compute) {
  const PackedWeight& w = weight.packed;
  const int64_t m = rows_of("dy", dy);
  check_shape("dy", dy, {m, w.rows});
  Output dx = output({m, w.cols});
  kernels().linear_backward(compute_of(compute), dy.data(), nullptr, m, w, nullptr, dx.data(), nullptr, nullptr,
                            scratch(kernels().linear_scratch_bytes(compute_of(compute), m, w.rows, w.cols, 0)));
  return dx;
}

nb::tuple linear_lora_backward_arrays(const Matrix& dy, const Matrix& x, const Weight& weight, const Matrix& a,
                                      const Matrix& b, float scale, const std::string& compute) {
  const PackedWeight& w = weight.packed;
  const Lora lora = lora_of(w, a, b, scale);
  const int64_t m = rows_of("dy", dy);
  check_shape("dy", dy, {m, w.rows});
  check_shape("x", x, {m, w.cols});
  Output dx = output({m, w.cols}), da = output({lora.rank, w.cols}), db = output({w.rows, lora.rank});
  kernels().linear_backward(compute_of(compute), dy.data(), x.data(), m, w, &lora, dx.data(), da.data(), db.data(),
                            scratch(kernels().linear_scratch_bytes(compute_of(compute), m, w.rows, w.cols, lora.rank)));
  return nb::make_tuple(dx, da, db);
}

Output decode(const Weight& weight) {
  const PackedWeight& w = weight.packed;
  Output dense = output({w.rows, w.cols});
  parallel_for(w.rows, [&](int64_t row) { kernels().decode_row(w, row, dense.data() + row * w.cols); });
  return dense;
}

// --- Head and embedding ------------------------------------------------------------------------

nb::tuple linear_cross_entropy_arrays(const Matrix& x, const Weight& weight, const Integers& targets, float softcap,
                                      bool gradient, const std::string& compute) {
  const PackedWeight& w = weight.packed;
  const int64_t m = rows_of("x", x);
  check_shape("x", x, {m, w.cols});
  check_shape("targets", targets, {m});
  for (int64_t i = 0; i < m; ++i) {
    const int64_t target = targets.data()[i];
    if (target != -100 && (target < 0 || target >= w.rows)) fail("target ", target, " is not in [0, ", w.rows, ")");
  }
  const Scratch memory = scratch(kernels().linear_cross_entropy_scratch_bytes(compute_of(compute), m, w.rows, w.cols));
  Output losses = output({m});
  if (!gradient) {
    kernels().linear_cross_entropy(compute_of(compute), x.data(), m, w, targets.data(), softcap, losses.data(), nullptr,
                                   memory);
    return nb::make_tuple(losses, nb::none());
  }
  Output dx = output({m, w.cols});
  kernels().linear_cross_entropy(compute_of(compute), x.data(), m, w, targets.data(), softcap, losses.data(), dx.data(),
                                 memory);
  return nb::make_tuple(losses, dx);
}

Output embedding_array(const Integers& tokens, const Weight& table, float scale) {
  Output out = output({size(tokens, 0), table.packed.cols});
  if (!kernels().embedding(tokens.data(), size(tokens, 0), table.packed, scale, out.data()))
    fail("a token is outside the embedding table");
  return out;
}

// --- Attention ---------------------------------------------------------------------------------

using Sinks = std::optional<Vector>;

/// `scale` 0: 1 / sqrt(dim).
AttentionShape attention_shape(const Matrix& q, int64_t heads, int64_t kv_heads, int64_t window, float scale,
                               float softcap, const Sinks& sinks) {
  const int64_t t = rows_of("q", q);
  if (heads < 1 || kv_heads < 1 || heads % kv_heads != 0)
    fail("heads ", heads, ": must be a multiple of kv_heads ", kv_heads);
  const int64_t dim = size(q, 1) / heads;
  if (dim < 1 || dim > 512) fail("q: the head dimension is ", dim, "; must be from 1 to 512");
  if (window < 0) fail("window ", window, " is negative");
  check_shape("q", q, {t, heads * dim});
  if (sinks) check_shape("sinks", *sinks, {heads});
  if (scale == 0) scale = 1.f / std::sqrt(static_cast<float>(dim));
  return {t, heads, kv_heads, dim, window, scale, softcap, sinks ? sinks->data() : nullptr};
}

void check_positions(const Integers& positions, int64_t t) {
  check_shape("positions", positions, {t});
  for (int64_t i = 0; i < t; ++i) {
    if (positions.data()[i] < 0 || positions.data()[i] > i) fail("positions[", i, "] is not in [0, ", i, "]");
  }
}

nb::tuple attention_forward_arrays(const Matrix& q, const Matrix& k, const Matrix& v, const Integers& positions,
                                   int64_t heads, int64_t kv_heads, int64_t window, float scale, float softcap,
                                   const Sinks& sinks, const std::string& compute) {
  const AttentionShape s = attention_shape(q, heads, kv_heads, window, scale, softcap, sinks);
  check_shape("k", k, {s.t, kv_heads * s.dim});
  check_shape("v", v, {s.t, kv_heads * s.dim});
  check_positions(positions, s.t);
  Output o = output({s.t, heads * s.dim}), lse = output({heads, s.t});
  kernels().attention_forward(compute_of(compute), s, q.data(), k.data(), v.data(), positions.data(), o.data(),
                              lse.data(), scratch(kernels().attention_scratch_bytes(compute_of(compute), s)));
  return nb::make_tuple(o, lse);
}

nb::tuple attention_backward_arrays(const Matrix& dout, const Matrix& q, const Matrix& k, const Matrix& v,
                                    const Matrix& o, const Matrix& lse, const Integers& positions, int64_t heads,
                                    int64_t kv_heads, int64_t window, float scale, float softcap,
                                    const std::string& compute) {
  const AttentionShape s = attention_shape(q, heads, kv_heads, window, scale, softcap, {});
  const int64_t queries = heads * s.dim, keys = kv_heads * s.dim;
  check_shape("k", k, {s.t, keys});
  check_shape("v", v, {s.t, keys});
  check_shape("dout", dout, {s.t, queries});
  check_shape("o", o, {s.t, queries});
  check_shape("lse", lse, {heads, s.t});
  check_positions(positions, s.t);
  Output dq = output({s.t, queries}), dk = output({s.t, keys}), dv = output({s.t, keys});
  kernels().attention_backward(compute_of(compute), s, dout.data(), q.data(), k.data(), v.data(), o.data(), lse.data(),
                               positions.data(), dq.data(), dk.data(), dv.data(),
                               scratch(kernels().attention_scratch_bytes(compute_of(compute), s)));
  return nb::make_tuple(dq, dk, dv);
}

/// k_cache and v_cache hold the first `past` rows; k and v follow them.
Output attention_decode_array(const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& k_cache,
                              const Matrix& v_cache, int64_t past, int64_t heads, int64_t kv_heads, int64_t window,
                              float scale, float softcap, const Sinks& sinks) {
  const AttentionShape s = attention_shape(q, heads, kv_heads, window, scale, softcap, sinks);
  const int64_t keys = kv_heads * s.dim, capacity = size(k_cache, 0);
  check_shape("k", k, {s.t, keys});
  check_shape("v", v, {s.t, keys});
  check_shape("k_cache", k_cache, {capacity, keys});
  check_shape("v_cache", v_cache, {capacity, keys});
  if (past < 0 || past > capacity) fail("past ", past, ": must be from 0 to the cache size ", capacity);
  constexpr KvFormat kFormat = KvFormat::kFloat32;
  const int64_t row = kv_row_bytes(kFormat, kv_heads, s.dim);
  const auto stored = [&](const Matrix& cached, const Matrix& added) {
    std::vector<uint8_t> rows(static_cast<size_t>((past + s.t) * row));
    kernels().kv_store(kFormat, cached.data(), past, kv_heads, s.dim, rows.data());
    kernels().kv_store(kFormat, added.data(), s.t, kv_heads, s.dim, rows.data() + past * row);
    return rows;
  };
  const std::vector<uint8_t> all_keys = stored(k_cache, k), all_values = stored(v_cache, v);
  Output o = output({s.t, heads * s.dim});
  kernels().attention_decode(s, q.data(), {all_keys.data(), all_values.data(), kFormat}, past, o.data(),
                             scratch(kernels().attention_scratch_bytes(Compute::kFloat32, s)));
  return o;
}

// --- Small ops ---------------------------------------------------------------------------------

/// How many groups of the size of `weight` a row of `d` numbers holds.
int64_t norm_groups(const Vector& weight, int64_t d) {
  const int64_t n = size(weight, 0);
  if (n < 1 || d % n != 0) fail("weight: the row size ", d, " is not a multiple of ", n);
  return d / n;
}

nb::tuple rms_norm_arrays(const Matrix& x, const Vector& weight, float eps) {
  const int64_t t = rows_of("x", x), d = size(x, 1), groups = norm_groups(weight, d);
  Output y = output({t, d}), rstd = output({t, groups});
  kernels().rms_norm(x.data(), weight.data(), t * groups, d / groups, eps, y.data(), rstd.data());
  return nb::make_tuple(y, rstd);
}

Output rms_norm_backward_array(const Matrix& dy, const Matrix& x, const Vector& weight, const Matrix& rstd) {
  const int64_t t = rows_of("x", x), d = size(x, 1), groups = norm_groups(weight, d);
  check_shape("dy", dy, {t, d});
  check_shape("rstd", rstd, {t, groups});
  Output dx = output({t, d});
  kernels().rms_norm_backward(dy.data(), x.data(), weight.data(), rstd.data(), t * groups, d / groups, dx.data());
  return dx;
}

/// The shape of a delta net, without the tokens.
DeltaNetShape delta_net_shape(const Matrix& qkv, const Matrix& b, const Matrix& taps, int64_t key_heads,
                              int64_t key_dim, float beta_scale) {
  DeltaNetShape s{rows_of("qkv", qkv), key_heads, key_dim, size(b, 1), 0, size(taps, 0), beta_scale};
  const int64_t values = size(qkv, 1) - 2 * s.keys();
  if (key_heads < 1 || key_dim < 1 || s.heads < 1 || s.heads % key_heads != 0 || values < 1 || values % s.heads != 0)
    fail("delta_net: the heads do not fit the columns");
  s.value_dim = values / s.heads;
  check_shape("b", b, {s.t, s.heads});
  check_shape("taps", taps, {s.taps, s.channels()});
  return s;
}

Output delta_net_array(const Matrix& qkv, const Matrix& b, const Matrix& a, const Matrix& taps, const Vector& a_log,
                       const Vector& dt_bias, const Integers& positions, int64_t key_heads, int64_t key_dim,
                       float beta_scale) {
  const DeltaNetShape s = delta_net_shape(qkv, b, taps, key_heads, key_dim, beta_scale);
  check_shape("a", a, {s.t, s.heads});
  check_positions(positions, s.t);
  Output o = output({s.t, s.values()});
  const DeltaNetInput in{qkv.data(), b.data(), a.data(), taps.data(), a_log.data(), dt_bias.data(), positions.data()};
  kernels().delta_net(s, in, o.data(), scratch(kernels().delta_net_scratch_bytes(s)));
  return o;
}

nb::tuple delta_net_backward_arrays(const Matrix& dout, const Matrix& qkv, const Matrix& b, const Matrix& a,
                                    const Matrix& taps, const Vector& a_log, const Vector& dt_bias,
                                    const Integers& positions, int64_t key_heads, int64_t key_dim, float beta_scale) {
  const DeltaNetShape s = delta_net_shape(qkv, b, taps, key_heads, key_dim, beta_scale);
  check_shape("a", a, {s.t, s.heads});
  check_shape("dout", dout, {s.t, s.values()});
  check_positions(positions, s.t);
  Output dqkv = output({s.t, s.channels()}), db = output({s.t, s.heads}), da = output({s.t, s.heads});
  const DeltaNetInput in{qkv.data(), b.data(), a.data(), taps.data(), a_log.data(), dt_bias.data(), positions.data()};
  kernels().delta_net_backward(s, in, dout.data(), dqkv.data(), db.data(), da.data(),
                               scratch(kernels().delta_net_scratch_bytes(s)));
  return nb::make_tuple(dqkv, db, da);
}

nb::tuple delta_net_decode_arrays(const Matrix& qkv, const Matrix& b, const Matrix& a, const Matrix& taps,
                                  const Vector& a_log, const Vector& dt_bias, const Vector& state,
                                  const Integers& positions, int64_t key_heads, int64_t key_dim, float beta_scale) {
  const DeltaNetShape s = delta_net_shape(qkv, b, taps, key_heads, key_dim, beta_scale);
  check_shape("a", a, {s.t, s.heads});
  check_shape("state", state, {(s.taps - 1) * s.channels() + s.key_dim * s.values()});
  check_shape("positions", positions, {s.t});
  Output o = output({s.t, s.values()}), next = output({size(state, 0)});
  const DeltaNetInput in{qkv.data(), b.data(), a.data(), taps.data(), a_log.data(), dt_bias.data(), positions.data()};
  kernels().delta_net_decode(s, in, state.data(), o.data(), next.data(), scratch(kernels().delta_net_scratch_bytes(s)));
  return nb::make_tuple(o, next);
}

Output rope_array(const Matrix& x, const Integers& positions, const Vector& inv_freq, int64_t heads, bool inverse,
                  bool interleaved, float factor) {
  const int64_t t = rows_of("x", x), columns = size(x, 1), half = size(inv_freq, 0);
  if (heads < 1 || half < 1 || columns % heads != 0 || 2 * half > columns / heads)
    fail("rope: heads must be at least 1, and the head dimension at least twice the size of inv_freq");
  check_shape("positions", positions, {t});
  Output y = output({t, columns});
  const RopeShape shape{t, heads, columns / heads, half, inverse, interleaved, factor};
  kernels().rope(shape, x.data(), positions.data(), inv_freq.data(), y.data(),
                 scratch(kernels().rope_scratch_bytes(half)));
  return y;
}

nb::tuple split_arrays(const Matrix& x, int64_t groups, int64_t first) {
  const int64_t t = rows_of("x", x), n = size(x, 1);
  if (groups < 1 || n % groups != 0 || first < 1 || first >= n / groups)
    fail("split: the groups must divide a row, and first must lie within one");
  Output a = output({t, groups * first}), b = output({t, n - groups * first});
  kernels().split(x.data(), t * groups, n / groups, first, a.data(), b.data());
  return nb::make_tuple(a, b);
}

Output join_arrays(const Matrix& a, const Matrix& b, int64_t groups) {
  const int64_t t = rows_of("a", a), first = size(a, 1), rest = size(b, 1);
  check_shape("b", b, {t, rest});
  if (groups < 1 || first % groups != 0 || rest % groups != 0) fail("join: the groups must divide both rows");
  Output x = output({t, first + rest});
  kernels().join(a.data(), b.data(), t * groups, first / groups, rest / groups, x.data());
  return x;
}

/// Columns of x that share a gate.
int64_t gate_width(const Matrix& x, const Matrix& gate) {
  const int64_t n = size(x, 1), gates = size(gate, 1);
  check_shape("gate", gate, {size(x, 0), gates});
  if (gates < 1 || n % gates != 0) fail("gate: ", gates, " columns do not divide the row size ", n);
  return n / gates;
}

Output sigmoid_gate_array(const Matrix& x, const Matrix& gate) {
  const int64_t t = rows_of("x", x), n = size(x, 1), width = gate_width(x, gate);
  Output y = output({t, n});
  kernels().sigmoid_gate(x.data(), gate.data(), t * n / width, width, y.data());
  return y;
}

nb::tuple sigmoid_gate_backward_arrays(const Matrix& dy, const Matrix& x, const Matrix& gate) {
  const int64_t t = rows_of("x", x), n = size(x, 1), width = gate_width(x, gate);
  check_shape("dy", dy, {t, n});
  Output dx = output({t, n}), dgate = output({t, n / width});
  kernels().sigmoid_gate_backward(dy.data(), x.data(), gate.data(), t * n / width, width, dx.data(), dgate.data());
  return nb::make_tuple(dx, dgate);
}

Output relu2_array(const Matrix& x) {
  Output y = output({size(x, 0), size(x, 1)});
  kernels().relu2(x.data(), size(x, 0) * size(x, 1), y.data());
  return y;
}

Output relu2_backward_array(const Matrix& dy, const Matrix& x) {
  check_shape("dy", dy, {size(x, 0), size(x, 1)});
  Output dx = output({size(x, 0), size(x, 1)});
  kernels().relu2_backward(dy.data(), x.data(), size(x, 0) * size(x, 1), dx.data());
  return dx;
}

Output softcap_array(const Matrix& x, float cap) {
  Output y = output({size(x, 0), size(x, 1)});
  kernels().softcap(x.data(), size(x, 0) * size(x, 1), cap, y.data());
  return y;
}

/// kernel(x, vector, t, d, out) for every row of x.
template <auto Kernels::* kernel>
Output by_rows(const Matrix& x, const Vector& vector) {
  const int64_t t = rows_of("x", x), d = size(x, 1);
  check_shape("vector", vector, {d});
  Output out = output({t, d});
  (kernels().*kernel)(x.data(), vector.data(), t, d, out.data());
  return out;
}

Output add_arrays(const Matrix& x, const Matrix& y) {
  const int64_t t = rows_of("x", x), d = size(x, 1);
  check_shape("y", y, {t, d});
  Output out = output({t, d});
  kernels().add(x.data(), y.data(), t * d, out.data());
  return out;
}

Output swiglu_array(const Matrix& gate, const Matrix& up) {
  const int64_t t = rows_of("gate", gate), d = size(gate, 1);
  check_shape("up", up, {t, d});
  Output out = output({t, d});
  kernels().glu(Glu::kSwiglu, gate.data(), up.data(), t * d, out.data());
  return out;
}

nb::tuple swiglu_backward_arrays(const Matrix& dout, const Matrix& gate, const Matrix& up) {
  const int64_t t = rows_of("gate", gate), d = size(gate, 1);
  check_shape("dout", dout, {t, d});
  check_shape("up", up, {t, d});
  Output dgate = output({t, d}), dup = output({t, d});
  kernels().glu_backward(Glu::kSwiglu, dout.data(), gate.data(), up.data(), t * d, dgate.data(), dup.data());
  return nb::make_tuple(dgate, dup);
}

// --- Peak --------------------------------------------------------------------------------------

/// The best of some runs, in GFLOP/s.
double fma_peak_gflops() {
  double best = 0;
  for (int run = 0; run < 10; ++run) {
    const auto start = std::chrono::steady_clock::now();
    const int64_t done = kernels().multiply_add_peak(2000000);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, 2e-9 * static_cast<double>(done) / seconds);
  }
  return best;
}

// --- Scratch -----------------------------------------------------------------------------------

std::map<std::string, size_t> scratch_bytes(int64_t m, int64_t rows, int64_t cols, int64_t rank,
                                            const std::string& compute) {
  return {{"linear", kernels().linear_scratch_bytes(compute_of(compute), m, rows, cols, rank)},
          {"linear_cross_entropy", kernels().linear_cross_entropy_scratch_bytes(compute_of(compute), m, rows, cols)}};
}

size_t attention_scratch(int64_t t, int64_t heads, int64_t kv_heads, int64_t dim, const std::string& compute) {
  return kernels().attention_scratch_bytes(compute_of(compute), {t, heads, kv_heads, dim, 0, 1.f, 0.f, nullptr});
}

}  // namespace

void register_kernels(nb::module_ m) {
  using namespace nb::literals;
  m.doc() = "The kernels on numpy arrays, for tests and benchmarks. Arrays are float32, tokens and positions int64.";

  // noconvert throughout: a silent copy would spoil a timing, and hide a wrong dtype in a test.
  nb::class_<Weight>(m, "Weight", "A packed weight: uint8 [ceil(rows / 16), cols / group, block_bytes].")
      .def(nb::init<Bytes, const std::string&, int64_t>(), "data"_a.noconvert(), "format"_a, "rows"_a);
  m.def("formats", &formats, "Bytes of one block of every weight format, by name.");

  m.def("linear_forward", &linear_forward_array, "x"_a.noconvert(), "weight"_a, "lora_a"_a.noconvert() = nb::none(),
        "lora_b"_a.noconvert() = nb::none(), "scale"_a = 0.f, "compute"_a = "float32");
  m.def("linear_backward", &linear_backward_array, "dy"_a.noconvert(), "weight"_a, "compute"_a = "float32",
        "dx, without LoRA.");
  m.def("linear_lora_backward", &linear_lora_backward_arrays, "dy"_a.noconvert(), "x"_a.noconvert(), "weight"_a,
        "lora_a"_a.noconvert(), "lora_b"_a.noconvert(), "scale"_a, "compute"_a = "float32", "(dx, dA, dB).");
  m.def("decode", &decode, "weight"_a, "The dense weight [rows, cols].");
  m.def("linear_cross_entropy", &linear_cross_entropy_arrays, "x"_a.noconvert(), "weight"_a, "targets"_a.noconvert(),
        "softcap"_a = 0.f, "gradient"_a = true, "compute"_a = "float32", "(losses, dx or None).");
  m.def("embedding", &embedding_array, "tokens"_a.noconvert(), "table"_a, "scale"_a);
  m.def("attention_forward", &attention_forward_arrays, "q"_a.noconvert(), "k"_a.noconvert(), "v"_a.noconvert(),
        "positions"_a.noconvert(), "heads"_a, "kv_heads"_a, "window"_a = 0, "scale"_a = 0.f, "softcap"_a = 0.f,
        "sinks"_a.noconvert() = nb::none(), "compute"_a = "float32",
        "(o, lse). A scale of 0 is 1 / sqrt(head dimension).");
  m.def("attention_backward", &attention_backward_arrays, "dout"_a.noconvert(), "q"_a.noconvert(), "k"_a.noconvert(),
        "v"_a.noconvert(), "o"_a.noconvert(), "lse"_a.noconvert(), "positions"_a.noconvert(), "heads"_a, "kv_heads"_a,
        "window"_a = 0, "scale"_a = 0.f, "softcap"_a = 0.f, "compute"_a = "float32", "(dq, dk, dv).");
  m.def("attention_decode", &attention_decode_array, "q"_a.noconvert(), "k"_a.noconvert(), "v"_a.noconvert(),
        "k_cache"_a.noconvert(), "v_cache"_a.noconvert(), "past"_a, "heads"_a, "kv_heads"_a, "window"_a = 0,
        "scale"_a = 0.f, "softcap"_a = 0.f, "sinks"_a.noconvert() = nb::none(),
        "Attention of tokens that follow the first `past` ones of the caches.");
  m.def("rms_norm", &rms_norm_arrays, "x"_a.noconvert(), "weight"_a.noconvert(), "eps"_a, "(y, rstd).");
  m.def("rms_norm_backward", &rms_norm_backward_array, "dy"_a.noconvert(), "x"_a.noconvert(), "weight"_a.noconvert(),
        "rstd"_a.noconvert());
  m.def("rope", &rope_array, "x"_a.noconvert(), "positions"_a.noconvert(), "inv_freq"_a.noconvert(), "heads"_a,
        "inverse"_a, "interleaved"_a = false, "factor"_a = 1.f);
  m.def("split", &split_arrays, "x"_a.noconvert(), "groups"_a, "first"_a, "(a, b).");
  m.def("join", &join_arrays, "a"_a.noconvert(), "b"_a.noconvert(), "groups"_a);
  m.def("sigmoid_gate", &sigmoid_gate_array, "x"_a.noconvert(), "gate"_a.noconvert());
  m.def("sigmoid_gate_backward", &sigmoid_gate_backward_arrays, "dy"_a.noconvert(), "x"_a.noconvert(),
        "gate"_a.noconvert(), "(dx, dgate).");
  m.def("relu2", &relu2_array, "x"_a.noconvert());
  m.def("relu2_backward", &relu2_backward_array, "dy"_a.noconvert(), "x"_a.noconvert());
  m.def("softcap", &softcap_array, "x"_a.noconvert(), "cap"_a);
  m.def("delta_net", &delta_net_array, "qkv"_a.noconvert(), "b"_a.noconvert(), "a"_a.noconvert(), "taps"_a.noconvert(),
        "a_log"_a.noconvert(), "dt_bias"_a.noconvert(), "positions"_a.noconvert(), "key_heads"_a, "key_dim"_a,
        "beta_scale"_a);
  m.def("delta_net_backward", &delta_net_backward_arrays, "dout"_a.noconvert(), "qkv"_a.noconvert(), "b"_a.noconvert(),
        "a"_a.noconvert(), "taps"_a.noconvert(), "a_log"_a.noconvert(), "dt_bias"_a.noconvert(),
        "positions"_a.noconvert(), "key_heads"_a, "key_dim"_a, "beta_scale"_a, "(dqkv, db, da).");
  m.def("delta_net_decode", &delta_net_decode_arrays, "qkv"_a.noconvert(), "b"_a.noconvert(), "a"_a.noconvert(),
        "taps"_a.noconvert(), "a_log"_a.noconvert(), "dt_bias"_a.noconvert(), "state"_a.noconvert(),
        "positions"_a.noconvert(), "key_heads"_a, "key_dim"_a, "beta_scale"_a, "(o, next state).");
  m.def("affine", &by_rows<&Kernels::affine>, "z"_a.noconvert(), "weight"_a.noconvert());
  m.def("add", &add_arrays, "x"_a.noconvert(), "y"_a.noconvert());
  m.def("add_bias", &by_rows<&Kernels::add_bias>, "x"_a.noconvert(), "bias"_a.noconvert());
  m.def("swiglu", &swiglu_array, "gate"_a.noconvert(), "up"_a.noconvert());
  m.def("swiglu_backward", &swiglu_backward_arrays, "dout"_a.noconvert(), "gate"_a.noconvert(), "up"_a.noconvert(),
        "(dgate, dup).");

  m.def("scratch_bytes", &scratch_bytes, "m"_a, "rows"_a, "cols"_a, "rank"_a, "compute"_a = "float32",
        "Bytes of scratch by kernel.");
  m.def("attention_scratch_bytes", &attention_scratch, "t"_a, "heads"_a, "kv_heads"_a, "dim"_a,
        "compute"_a = "float32");
  m.def("fma_peak_gflops", &fma_peak_gflops, "GFLOP/s of multiply-adds in registers, with the threads in use.");
  m.def("use_instruction_set", &use_instruction_set, "name"_a, "Calls its kernels from now on.");
  m.def("thread_count", &thread_count, "Size of the thread pool.");
  m.def(
      "use_threads", [](bool use) { ThreadPool::get().enable(use); }, "use"_a, "Whether kernels use the thread pool.");
}

}  // namespace mft
