// Embedding, biases, norms, rotary embedding, gated activations and AdamW against float64.

#include <algorithm>
#include <limits>

#include "runtime/kernels/attention/rope.h"
#include "runtime/kernels/attention/short_conv.h"
#include "runtime/kernels/elementwise/add_bias.h"
#include "runtime/kernels/elementwise/glu.h"
#include "runtime/kernels/elementwise/glu_2bit.h"
#include "runtime/kernels/elementwise/ms_rms_norm.h"
#include "runtime/kernels/elementwise/relu2.h"
#include "runtime/kernels/elementwise/rms_norm.h"
#include "runtime/kernels/elementwise/sigmoid_gate.h"
#include "runtime/kernels/elementwise/softcap.h"
#include "runtime/kernels/elementwise/split.h"
#include "runtime/kernels/linear/embedding.h"
#include "runtime/kernels/storage/adamw.h"
#include "runtime/platform/vec.h"
#include "runtime/tests/kernels/kernel_test.h"

using namespace mft;
using namespace mft::MFT_ISA;
using namespace mft_test;

namespace {

void test_exp() {
  for (double x = -87.3; x < 88.3; x += 0.0137) {
    const float f = static_cast<float>(x);
    CHECK_NEAR(mft::MFT_ISA::exp(splat(f))[0] / std::exp(static_cast<double>(f)), 1., 2e-7);
  }
  CHECK(mft::MFT_ISA::exp(splat(-std::numeric_limits<float>::infinity()))[0] == 0.f);
  CHECK(mft::MFT_ISA::exp(splat(-200.f))[0] == 0.f);
  CHECK(mft::MFT_ISA::exp(splat(0.f))[0] == 1.f);
  CHECK(std::isfinite(mft::MFT_ISA::exp(splat(1000.f))[0]));
  for (const float wild : {-1e5f, -1e10f, -3e38f})
    CHECK(mft::MFT_ISA::exp(splat(wild))[0] == 0.f);  // undefined nowhere on the way
  CHECK(std::isnan(mft::MFT_ISA::exp(splat(std::numeric_limits<float>::quiet_NaN()))[0]));
}

void test_embedding(const char* format) {
  const int64_t k = 64;
  const TestWeight table(format, 20, k);
  const int64_t tokens[] = {0, 19, 7, 16, 7};
  Floats out(5 * k);
  for (const float scale : {1.f, 3.f}) {
    CHECK(embedding(tokens, 5, table.packed, scale, out.data()));
    for (int64_t i = 0; i < 5 * k; ++i) {
      CHECK_NEAR(out[i], scale * table.dense[tokens[i / k] * k + i % k], 1e-5 * scale);
    }
  }
  const int64_t high = 20;
  const int64_t low = -1;
  CHECK(!embedding(&high, 1, table.packed, 1.f, out.data()));
  CHECK(!embedding(&low, 1, table.packed, 1.f, out.data()));
}

void test_add_bias(int64_t t, int64_t d) {
  const Floats x = random_floats(t * d), bias = random_floats(d);
  Floats out(t * d);
  add_bias(x.data(), bias.data(), t, d, out.data());
  for (int64_t i = 0; i < t * d; ++i) CHECK(out[i] == x[i] + bias[i % d]);
}

void test_rms_norm(int64_t t, int64_t d) {
  const double eps = 1e-5f;
  const Floats x = random_floats(t * d), weight = random_floats(d), dy = random_floats(t * d);
  Doubles y(t * d), r(t), dx(t * d);
  for (int64_t i = 0; i < t; ++i) {
    double squares = 0;
    for (int64_t j = 0; j < d; ++j) squares += static_cast<double>(x[i * d + j]) * x[i * d + j];
    r[i] = 1 / std::sqrt(squares / d + eps);
    double dot = 0;
    for (int64_t j = 0; j < d; ++j) {
      y[i * d + j] = x[i * d + j] * r[i] * weight[j];
      dot += static_cast<double>(dy[i * d + j]) * weight[j] * x[i * d + j] * r[i] / d;
    }
    for (int64_t j = 0; j < d; ++j) {
      const double dz = static_cast<double>(dy[i * d + j]) * weight[j];
      dx[i * d + j] = r[i] * (dz - x[i * d + j] * r[i] * dot);
    }
  }
  Floats out(t * d), rstd(t), grad(t * d);
  rms_norm(x.data(), weight.data(), t, d, 1e-5f, out.data(), rstd.data());
  rms_norm_backward(dy.data(), x.data(), weight.data(), rstd.data(), t, d, grad.data());
  CHECK(error(out, y) < kTolerance);
  CHECK(error(rstd, r) < kTolerance);
  CHECK(error(grad, dx) < kTolerance);
}

void test_rope(int64_t t, int64_t heads, int64_t dim, int64_t half, bool interleaved, float factor) {
  Floats inv_freq(half);
  for (int64_t i = 0; i < half; ++i) inv_freq[i] = std::pow(1e4f, -2.f * i / dim);
  std::vector<int64_t> positions(t);
  for (int64_t i = 0; i < t; ++i) positions[i] = i % 7 + (i == t - 1 ? 8000 : 0);
  const Floats x = random_floats(t * heads * dim);
  Doubles y(x.begin(), x.end()), twice(x.begin(), x.end());
  for (int64_t i = 0; i < t * heads; ++i) {
    for (int64_t j = 0; j < half; ++j) {
      const double angle = static_cast<float>(positions[i / heads]) * inv_freq[j];
      const int64_t first = i * dim + (interleaved ? 2 * j : j), second = interleaved ? first + 1 : first + half;
      const double low = x[first], high = x[second];
      y[first] = factor * (low * std::cos(angle) - high * std::sin(angle));
      y[second] = factor * (high * std::cos(angle) + low * std::sin(angle));
      twice[first] *= factor * factor, twice[second] *= factor * factor;
    }
  }
  TestScratch scratch(rope_scratch_bytes(half));
  RopeShape shape{t, heads, dim, half, false, interleaved, factor};
  Floats out(x.size()), back(x.size());
  rope(shape, x.data(), positions.data(), inv_freq.data(), out.data(), scratch.get());
  CHECK(error(out, y) < kTolerance);
  shape.inverse = true;
  rope(shape, out.data(), positions.data(), inv_freq.data(), back.data(), scratch.get());
  CHECK(error(back, twice) < kTolerance);
  rope(shape, out.data(), positions.data(), inv_freq.data(), out.data(), scratch.get());  // in place
  CHECK(out == back);
}

void test_split(int64_t rows, int64_t n, int64_t first) {
  const Floats x = random_floats(rows * n);
  Floats a(rows * first), b(rows * (n - first)), again(x.size());
  split(x.data(), rows, n, first, a.data(), b.data());
  for (int64_t i = 0; i < rows * n; ++i) {
    const int64_t row = i / n, column = i % n;
    CHECK(x[i] == (column < first ? a[row * first + column] : b[row * (n - first) + column - first]));
  }
  join(a.data(), b.data(), rows, first, n - first, again.data());
  CHECK(again == x);
}

void test_sigmoid_gate(int64_t rows, int64_t width) {
  const Floats x = random_floats(rows * width), dy = random_floats(rows * width);
  Floats gate = random_floats(rows, 3.f);
  if (rows > 1) gate[0] = -200.f;  // e^200 is infinite in float32
  Doubles y(x.size()), dx(x.size()), dgate(rows);
  for (int64_t i = 0; i < rows; ++i) {
    const double s = 1 / (1 + std::exp(-static_cast<double>(gate[i])));
    for (int64_t j = i * width; j < (i + 1) * width; ++j) {
      y[j] = x[j] * s, dx[j] = dy[j] * s;
      dgate[i] += static_cast<double>(dy[j]) * x[j] * s * (1 - s);
    }
  }
  Floats y_kernel(x.size()), dx_kernel(x.size()), dgate_kernel(rows);
  sigmoid_gate(x.data(), gate.data(), rows, width, y_kernel.data());
  sigmoid_gate_backward(dy.data(), x.data(), gate.data(), rows, width, dx_kernel.data(), dgate_kernel.data());
  CHECK(error(y_kernel, y) < kTolerance);
  CHECK(error(dx_kernel, dx) < kTolerance);
  CHECK(error(dgate_kernel, dgate) < kTolerance);
}

void test_relu2(int64_t n) {
  const Floats x = random_floats(n), dy = random_floats(n);
  Doubles y(n), dx(n);
  for (int64_t i = 0; i < n; ++i) {
    const double positive = std::max(x[i], 0.f);
    y[i] = positive * positive, dx[i] = 2 * positive * dy[i];
  }
  Floats y_kernel(n), dx_kernel(n);
  relu2(x.data(), n, y_kernel.data());
  relu2_backward(dy.data(), x.data(), n, dx_kernel.data());
  CHECK(error(y_kernel, y) < kTolerance);
  CHECK(error(dx_kernel, dx) < kTolerance);
}

void test_softcap(int64_t n) {
  Floats x = random_floats(n, 60.f), y(n);
  x[0] = 5e4f;
  if (n > 1) x[1] = -5e4f;
  Doubles expected(n);
  for (int64_t i = 0; i < n; ++i) expected[i] = 30 * std::tanh(static_cast<double>(x[i]) / 30);
  softcap(x.data(), n, 30.f, y.data());
  CHECK(error(y, expected) < kTolerance);
}

// The activation and its derivative.
struct Activation {
  double value, slope;
};

Activation silu_exact(double g) {
  const double s = 1 / (1 + std::exp(-g));
  return {g * s, s * (1 + g * (1 - s))};
}

Activation gelu_exact(double g) {
  const double scale = std::sqrt(2 / std::acos(-1.));
  const double tanh = std::tanh(scale * (g + 0.044715 * g * g * g));
  return {g / 2 * (1 + tanh), (1 + tanh + g * (1 - tanh * tanh) * scale * (1 + 3 * 0.044715 * g * g)) / 2};
}

// Moderate gates and, from the third on, a few that overflow a naive formula.
Floats random_gates(int64_t n) {
  Floats gate = random_floats(n, 4.f);
  const float extremes[] = {0.f, -200.f, 200.f, -1e15f, 1e15f, 1e30f, -1e38f};
  for (int64_t i = 0; i < 7 && 2 + 3 * i < n; ++i) gate[2 + 3 * i] = extremes[i];
  return gate;
}

void test_glu(Glu kind, int64_t n) {
  const Floats gate = random_gates(n), up = random_floats(n), dout = random_floats(n);
  Floats out(n), dgate(n), dup(n);
  glu(kind, gate.data(), up.data(), n, out.data());
  glu_backward(kind, dout.data(), gate.data(), up.data(), n, dgate.data(), dup.data());
  // Element by element: the largest gates would hide the rest. Far left the value is all but 0.
  for (int64_t i = 0; i < n; ++i) {
    const Activation act = kind == Glu::kSwiglu ? silu_exact(gate[i]) : gelu_exact(gate[i]);
    CHECK_NEAR(out[i], act.value * up[i], kTolerance * std::max(1., std::fabs(act.value * up[i])));
    CHECK_NEAR(dgate[i], act.slope * dout[i] * up[i], kTolerance * std::max(1., std::fabs(act.slope)));
    CHECK_NEAR(dup[i], act.value * dout[i], kTolerance * std::max(1., std::fabs(act.value * dout[i])));
  }
}

void test_glu_2bit(Glu kind, int64_t t, int64_t d) {
  const int64_t n = t * d, row_bytes = (d + 3) / 4;
  // From the paper.
  const bool silu = kind == Glu::kSwiglu;
  const double a[] = {silu ? -0.04060357190528599 : -0.04922261145617846,
                      silu ? 1.080925428529668 : 1.0979632065417297};
  const double c[] = {silu ? -6.3050461001646445 : -3.1858810036855245,
                      silu ? -0.0008684942046214787 : -0.001178821281161997,
                      silu ? 6.325815242089708 : 3.190832613414926};
  const double slopes[] = {0, a[0], a[0] + a[1], 1};
  const Floats gate = random_floats(n, 4.f), dout = random_floats(n);
  Floats up = random_floats(n);
  if (n > 9) up[9] = 0.f, up[n - 1] = -0.f;
  Doubles y(n), dg(n), du(n);
  std::vector<uint8_t> expected(t * row_bytes);
  for (int64_t i = 0; i < n; ++i) {
    const double value = (silu ? silu_exact(gate[i]) : gelu_exact(gate[i])).value;
    int code = 0;
    for (const double threshold : c) code += gate[i] > static_cast<float>(threshold);
    expected[i / d * row_bytes + i % d / 4] |= static_cast<uint8_t>(code << (2 * (i % d % 4)));
    y[i] = value * up[i];
    dg[i] = slopes[code] * dout[i] * up[i];
    du[i] = up[i] == 0 ? 0 : dout[i] * value;
  }
  Floats out(n), dgate(n), dup(n);
  std::vector<uint8_t> codes(t * row_bytes, 0xff);
  glu_2bit(kind, gate.data(), up.data(), t, d, out.data(), codes.data());
  glu_2bit_backward(kind, dout.data(), up.data(), out.data(), codes.data(), t, d, dgate.data(), dup.data());
  CHECK(codes == expected);
  CHECK(error(out, y) < kTolerance);
  CHECK(error(dgate, dg) < kTolerance);
  CHECK(error(dup, du) < kTolerance);
}

void test_ms_rms_norm(int64_t t, int64_t d) {
  const double eps = 1e-5f;
  const Floats dz = random_floats(t * d);
  Floats x = random_floats(t * d);
  for (float& value : x) value += 3.f;  // a mean that stays
  Doubles z(t * d), r(t), dx(t * d);
  for (int64_t i = 0; i < t; ++i) {
    double squares = 0, dot = 0;
    for (int64_t j = 0; j < d; ++j) squares += static_cast<double>(x[i * d + j]) * x[i * d + j];
    r[i] = 1 / std::sqrt(squares / d + eps);
    for (int64_t j = 0; j < d; ++j) {
      z[i * d + j] = x[i * d + j] * r[i];
      dot += dz[i * d + j] * z[i * d + j] / d;
    }
    for (int64_t j = 0; j < d; ++j) dx[i * d + j] = r[i] * (dz[i * d + j] - z[i * d + j] * dot);
  }
  Floats out(t * d), rstd(t), grad(t * d);
  ms_rms_norm(x.data(), t, d, 1e-5f, out.data(), rstd.data());
  ms_rms_norm_backward(dz.data(), out.data(), rstd.data(), t, d, grad.data());
  CHECK(error(out, z) < kTolerance);
  CHECK(error(rstd, r) < kTolerance);
  CHECK(error(grad, dx) < kTolerance);
  Floats in_place = dz;
  ms_rms_norm_backward(in_place.data(), out.data(), rstd.data(), t, d, in_place.data());
  CHECK(in_place == grad);
}

void test_adamw(int64_t n, bool with_gradient) {
  AdamWConfig config;
  config.weight_decay = 0.01;
  const double lr = 1e-2, clip = 0.25;
  Floats p = random_floats(n), m(n), v(n);
  Doubles ep(p.begin(), p.end()), em(n), ev(n);
  for (int64_t step = 1; step <= 5; ++step) {
    const Floats g = with_gradient || step == 1 ? random_floats(n) : Floats(n);
    adamw_step(p.data(), with_gradient || step == 1 ? g.data() : nullptr, m.data(), v.data(), n, lr,
               static_cast<float>(clip), step, config);
    for (int64_t i = 0; i < n; ++i) {
      const double grad = g[i] * clip;
      ep[i] *= 1 - lr * config.weight_decay;
      em[i] = config.beta1 * em[i] + (1 - config.beta1) * grad;
      ev[i] = config.beta2 * ev[i] + (1 - config.beta2) * grad * grad;
      const double denominator = std::sqrt(ev[i]) / std::sqrt(1 - std::pow(config.beta2, step)) + config.eps;
      ep[i] -= lr / (1 - std::pow(config.beta1, step)) * em[i] / denominator;
    }
  }
  CHECK(error(p, ep) < 1e-6);
  CHECK(error(m, em) < 1e-6);
  CHECK(error(v, ev) < 1e-6);
}

void test_sum_of_squares() {
  const Floats x = random_floats(1003);
  double expected = 0;
  for (const float value : x) expected += static_cast<double>(value) * value;
  CHECK_NEAR(sum_of_squares(x.data(), 1003), expected, 1e-9 * expected);
}

}  // namespace

int run_tests() {
  test_exp();
  for (const char* format : kFormats) test_embedding(format);
  for (const int64_t t : {1, 5, 64}) {
    test_rms_norm(t, 576);
    test_rms_norm(t, 13);
    test_add_bias(t, 13);
    test_ms_rms_norm(t, 576);
    test_ms_rms_norm(t, 13);
    for (const bool interleaved : {false, true}) {
      test_rope(t, 3, 64, 32, interleaved, 1.f);
      test_rope(t, 2, 8, 4, interleaved, 1.5f);
      test_rope(t, 3, 24, 9, interleaved, 0.7f);
    }
    test_split(t, 13, 5);
    test_split(t, 40000, 1);
    test_sigmoid_gate(t, 1);
    test_sigmoid_gate(t, 37);
  }
  for (const int64_t n : {1, 3, 17, 40003}) {
    test_relu2(n);
    test_softcap(n);
  }
  for (const Glu kind : {Glu::kSwiglu, Glu::kGeglu}) {
    for (const int64_t n : {1, 2, 3, 7, 16385, 40003}) test_glu(kind, n);
    for (const int64_t d : {1, 2, 3, 7, 96, 16385}) {
      test_glu_2bit(kind, 1, d);
      test_glu_2bit(kind, 37, d);
    }
  }
  test_adamw(20003, true);
  test_adamw(13, false);
  test_sum_of_squares();
  return finish();
}
