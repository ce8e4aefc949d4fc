// The delta net in chunks against the formula token by token, in float64.

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/kernels/recurrent/delta_net.h"
#include "runtime/tests/kernels/kernel_test.h"

using namespace mft;
using namespace mft::MFT_ISA;
using namespace mft_test;

namespace {

struct Inputs {
  Floats qkv, b, a, taps, a_log, dt_bias;
  std::vector<int64_t> positions;

  DeltaNetInput get() const {
    return {qkv.data(), b.data(), a.data(), taps.data(), a_log.data(), dt_bias.data(), positions.data()};
  }
};

Inputs random_inputs(const DeltaNetShape& s, int64_t row_length) {
  Inputs in{random_floats(s.t * s.channels()),
            random_floats(s.t * s.heads),
            random_floats(s.t * s.heads),
            random_floats(s.taps * s.channels()),
            random_floats(s.heads),
            random_floats(s.heads),
            {}};
  for (int64_t i = 0; i < s.t; ++i) in.positions.push_back(i % row_length);
  return in;
}

double silu_of(double x) { return x / (1 + std::exp(-x)); }

// o of all tokens.
Doubles reference(const DeltaNetShape& s, const Inputs& in, const Doubles& qkv, const Doubles& b, const Doubles& a) {
  const int64_t channels = s.channels(), dk = s.key_dim, dv = s.value_dim, group = s.heads / s.key_heads;
  Doubles u(s.t * channels), o(s.t * s.values());
  for (int64_t t = 0; t < s.t; ++t) {
    for (int64_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (int64_t j = 0; j < s.taps && j <= in.positions[t]; ++j) {
        sum += static_cast<double>(in.taps[(s.taps - 1 - j) * channels + c]) * qkv[(t - j) * channels + c];
      }
      u[t * channels + c] = silu_of(sum);
    }
  }
  for (int64_t head = 0; head < s.heads; ++head) {
    Doubles h(dk * dv);
    for (int64_t t = 0; t < s.t; ++t) {
      if (in.positions[t] == 0) std::fill(h.begin(), h.end(), 0.);
      const double* q = u.data() + t * channels + head / group * dk;
      const double* k = q + s.keys();
      const double* v = u.data() + t * channels + 2 * s.keys() + head * dv;
      double qq = 1e-6, kk = 1e-6;
      for (int64_t i = 0; i < dk; ++i) qq += q[i] * q[i], kk += k[i] * k[i];
      const double beta = s.beta_scale / (1 + std::exp(-b[t * s.heads + head]));
      const double g = std::exp(-std::exp(static_cast<double>(in.a_log[head])) *
                                std::log1p(std::exp(a[t * s.heads + head] + in.dt_bias[head])));
      for (int64_t j = 0; j < dv; ++j) {
        double seen = 0;
        for (int64_t i = 0; i < dk; ++i) seen += (h[i * dv + j] *= g) * k[i] / std::sqrt(kk);
        for (int64_t i = 0; i < dk; ++i) h[i * dv + j] += k[i] / std::sqrt(kk) * beta * (v[j] - seen);
        double out = 0;
        for (int64_t i = 0; i < dk; ++i)
          out += h[i * dv + j] * q[i] / std::sqrt(qq) / std::sqrt(static_cast<double>(dk));
        o[t * s.values() + head * dv + j] = out;
      }
    }
  }
  return o;
}

// The derivative of sum(dout * o) along a random direction, by central differences.
double along(const DeltaNetShape& s, const Inputs& in, const Floats& dout, const Doubles& dqkv, const Doubles& db,
             const Doubles& da) {
  constexpr double kStep = 1e-5;
  double result = 0;
  for (const double sign : {1., -1.}) {
    Doubles qkv(in.qkv.begin(), in.qkv.end()), b(in.b.begin(), in.b.end()), a(in.a.begin(), in.a.end());
    for (size_t i = 0; i < qkv.size(); ++i) qkv[i] += sign * kStep * dqkv[i];
    for (size_t i = 0; i < b.size(); ++i) b[i] += sign * kStep * db[i], a[i] += sign * kStep * da[i];
    const Doubles o = reference(s, in, qkv, b, a);
    for (size_t i = 0; i < o.size(); ++i) result += sign * dout[i] * o[i] / (2 * kStep);
  }
  return result;
}

void test_training(const DeltaNetShape& s, int64_t row_length) {
  const Inputs in = random_inputs(s, row_length);
  const Doubles qkv(in.qkv.begin(), in.qkv.end()), b(in.b.begin(), in.b.end()), a(in.a.begin(), in.a.end());
  const Doubles expected = reference(s, in, qkv, b, a);
  const Floats dout = random_floats(s.t * s.values());
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  Floats first[4];
  for (int run = 0; run < 2; ++run) {
    TestScratch scratch(delta_net_scratch_bytes(s));
    Floats o(expected.size(), kNaN), dqkv(qkv.size(), kNaN), db(b.size(), kNaN), da(a.size(), kNaN);
    delta_net(s, in.get(), o.data(), scratch.get());
    delta_net_backward(s, in.get(), dout.data(), dqkv.data(), db.data(), da.data(), scratch.get());
    if (run == 1) {
      CHECK(first[0] == o && first[1] == dqkv && first[2] == db && first[3] == da);
      continue;
    }
    CHECK(error(o, expected) < kTolerance);
    for (int direction = 0; direction < 3; ++direction) {
      const Floats x = random_floats(static_cast<int64_t>(qkv.size())), y = random_floats(s.t * s.heads),
                   z = random_floats(s.t * s.heads);
      double ours = 0, size = 0;
      for (size_t i = 0; i < qkv.size(); ++i)
        ours += static_cast<double>(dqkv[i]) * x[i], size += std::abs(dqkv[i] * x[i]);
      for (size_t i = 0; i < b.size(); ++i)
        ours += static_cast<double>(db[i]) * y[i] + static_cast<double>(da[i]) * z[i];
      const double theirs = along(s, in, dout, {x.begin(), x.end()}, {y.begin(), y.end()}, {z.begin(), z.end()});
      CHECK_NEAR(ours, theirs, 1e-4 * size);
    }
    first[0] = o, first[1] = dqkv, first[2] = db, first[3] = da;
  }
}

// A row in pieces, each from the state behind the one before, gives the whole row.
void test_decode(const DeltaNetShape& s, const std::vector<int64_t>& pieces) {
  const Inputs in = random_inputs(s, s.t);
  TestScratch scratch(delta_net_scratch_bytes(s));
  Floats whole(s.t * s.values()), parts;
  delta_net(s, in.get(), whole.data(), scratch.get());
  const int64_t size = (s.taps - 1) * s.channels() + s.key_dim * s.values();
  Floats state = random_floats(size), next(size);  // the first piece must not read it
  int64_t begin = 0;
  for (const int64_t n : pieces) {
    DeltaNetShape piece = s;
    piece.t = n;
    DeltaNetInput part = in.get();
    part.qkv += begin * s.channels();
    part.b += begin * s.heads;
    part.a += begin * s.heads;
    part.positions += begin;
    Floats o(n * s.values());
    delta_net_decode(piece, part, state.data(), o.data(), next.data(), scratch.get());
    parts.insert(parts.end(), o.begin(), o.end());
    state.swap(next);
    begin += n;
  }
  CHECK(begin == s.t);
  CHECK(error(parts, Doubles(whole.begin(), whole.end())) < kTolerance);
}

}  // namespace

int run_tests() {
  for (const int64_t t : {1, 2, 47, 48, 49, 150}) {
    test_training({t, 1, 8, 1, 8, 4, 1.f}, t);
    test_training({t, 2, 16, 4, 24, 3, 1.f}, 40);
  }
  test_training({130, 1, 40, 2, 16, 2, 2.f}, 1);
  test_training({100, 1, 128, 1, 128, 4, 1.f}, 100);
  test_decode({60, 2, 16, 4, 24, 4, 1.f}, {1, 1, 1, 2, 50, 1, 4});
  test_decode({51, 1, 8, 1, 8, 2, 1.f}, {49, 2});
  return finish();
}
