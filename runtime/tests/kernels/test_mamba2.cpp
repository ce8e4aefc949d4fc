// Mamba-2's recurrence in chunks against the formula token by token, in float64.

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/kernels/recurrent/mamba2.h"
#include "runtime/tests/kernels/kernel_test.h"

using namespace mft;
using namespace mft::MFT_ISA;
using namespace mft_test;

namespace {

struct Inputs {
  Floats xbc, dt, taps, conv_bias, a_log, dt_bias, skip;
  std::vector<int64_t> positions;

  Mamba2Input get() const {
    return {xbc.data(),   dt.data(),      taps.data(), conv_bias.data(),
            a_log.data(), dt_bias.data(), skip.data(), positions.data()};
  }
};

Inputs random_inputs(const Mamba2Shape& s, int64_t row_length) {
  Inputs in{random_floats(s.t * s.channels()),
            random_floats(s.t * s.heads),
            random_floats(s.taps * s.channels()),
            random_floats(s.channels()),
            random_floats(s.heads),
            random_floats(s.heads),
            random_floats(s.heads),
            {}};
  for (int64_t i = 0; i < s.t; ++i) in.positions.push_back(i % row_length);
  return in;
}

double silu_of(double x) { return x / (1 + std::exp(-x)); }

// y of all tokens.
Doubles reference(const Mamba2Shape& s, const Inputs& in, const Doubles& xbc, const Doubles& dt) {
  const int64_t channels = s.channels(), n = s.state, d = s.dim;
  Doubles u(s.t * channels), y(s.t * s.values());
  for (int64_t t = 0; t < s.t; ++t) {
    for (int64_t c = 0; c < channels; ++c) {
      double sum = in.conv_bias[c];
      for (int64_t j = 0; j < s.taps && j <= in.positions[t]; ++j) {
        sum += static_cast<double>(in.taps[(s.taps - 1 - j) * channels + c]) * xbc[(t - j) * channels + c];
      }
      u[t * channels + c] = silu_of(sum);
    }
  }
  for (int64_t head = 0; head < s.heads; ++head) {
    Doubles h(n * d);
    for (int64_t t = 0; t < s.t; ++t) {
      if (in.positions[t] == 0) std::fill(h.begin(), h.end(), 0.);
      const double* x = u.data() + t * channels + head * d;
      const double* b = u.data() + t * channels + s.values() + head / (s.heads / s.groups) * n;
      const double* c = b + s.groups * n;
      const double step = std::log1p(std::exp(dt[t * s.heads + head] + in.dt_bias[head]));
      const double decay = std::exp(-std::exp(static_cast<double>(in.a_log[head])) * step);
      for (int64_t j = 0; j < d; ++j) {
        double out = in.skip[head] * x[j];
        for (int64_t i = 0; i < n; ++i) {
          h[i * d + j] = decay * h[i * d + j] + b[i] * step * x[j];
          out += h[i * d + j] * c[i];
        }
        y[t * s.values() + head * d + j] = out;
      }
    }
  }
  return y;
}

// The derivative of sum(dy * y) along a random direction, by central differences.
double along(const Mamba2Shape& s, const Inputs& in, const Floats& dy, const Doubles& dxbc, const Doubles& ddt) {
  constexpr double kStep = 1e-5;
  double result = 0;
  for (const double sign : {1., -1.}) {
    Doubles xbc(in.xbc.begin(), in.xbc.end()), dt(in.dt.begin(), in.dt.end());
    for (size_t i = 0; i < xbc.size(); ++i) xbc[i] += sign * kStep * dxbc[i];
    for (size_t i = 0; i < dt.size(); ++i) dt[i] += sign * kStep * ddt[i];
    const Doubles y = reference(s, in, xbc, dt);
    for (size_t i = 0; i < y.size(); ++i) result += sign * dy[i] * y[i] / (2 * kStep);
  }
  return result;
}

void test_training(const Mamba2Shape& s, int64_t row_length) {
  const Inputs in = random_inputs(s, row_length);
  const Doubles xbc(in.xbc.begin(), in.xbc.end()), dt(in.dt.begin(), in.dt.end());
  const Doubles expected = reference(s, in, xbc, dt);
  const Floats dy = random_floats(s.t * s.values());
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  Floats first[3];
  for (int run = 0; run < 2; ++run) {
    TestScratch scratch(mamba2_scratch_bytes(s));
    Floats y(expected.size(), kNaN), dxbc(xbc.size(), kNaN), ddt(dt.size(), kNaN);
    mamba2(s, in.get(), y.data(), scratch.get());
    mamba2_backward(s, in.get(), dy.data(), dxbc.data(), ddt.data(), scratch.get());
    if (run == 1) {
      CHECK(first[0] == y && first[1] == dxbc && first[2] == ddt);
      continue;
    }
    CHECK(error(y, expected) < kTolerance);
    for (int direction = 0; direction < 3; ++direction) {
      const Floats a = random_floats(static_cast<int64_t>(xbc.size())), b = random_floats(s.t * s.heads);
      double ours = 0, size = 0;
      for (size_t i = 0; i < xbc.size(); ++i)
        ours += static_cast<double>(dxbc[i]) * a[i], size += std::abs(dxbc[i] * a[i]);
      for (size_t i = 0; i < dt.size(); ++i) ours += static_cast<double>(ddt[i]) * b[i];
      CHECK_NEAR(ours, along(s, in, dy, {a.begin(), a.end()}, {b.begin(), b.end()}), 1e-4 * size);
    }
    first[0] = y, first[1] = dxbc, first[2] = ddt;
  }
}

// A row in pieces, each from the state behind the one before, gives the whole row.
void test_decode(const Mamba2Shape& s, const std::vector<int64_t>& pieces) {
  const Inputs in = random_inputs(s, s.t);
  TestScratch scratch(mamba2_scratch_bytes(s));
  Floats whole(s.t * s.values()), parts;
  mamba2(s, in.get(), whole.data(), scratch.get());
  const int64_t size = (s.taps - 1) * s.channels() + s.state * s.values();
  Floats state = random_floats(size), next(size);  // the first piece must not read it
  int64_t begin = 0;
  for (const int64_t n : pieces) {
    Mamba2Shape piece = s;
    piece.t = n;
    Mamba2Input part = in.get();
    part.xbc += begin * s.channels();
    part.dt += begin * s.heads;
    part.positions += begin;
    Floats y(n * s.values());
    mamba2_decode(piece, part, state.data(), y.data(), next.data(), scratch.get());
    parts.insert(parts.end(), y.begin(), y.end());
    state.swap(next);
    begin += n;
  }
  CHECK(begin == s.t);
  CHECK(error(parts, Doubles(whole.begin(), whole.end())) < kTolerance);
}

}  // namespace

int run_tests() {
  for (const int64_t t : {1, 2, 47, 48, 49, 150}) {
    test_training({t, 1, 8, 1, 8, 4}, t);
    test_training({t, 2, 24, 6, 16, 3}, 40);
  }
  test_training({130, 1, 16, 3, 40, 2}, 1);
  test_training({100, 1, 128, 5, 64, 4}, 100);
  test_decode({60, 2, 16, 4, 24, 4}, {1, 1, 1, 2, 50, 1, 4});
  test_decode({51, 1, 8, 1, 8, 2}, {49, 2});
  return finish();
}
