// A mixture of experts against the formula token by token, in float64.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "runtime/kernels/linear/experts.h"
#include "runtime/tests/kernels/kernel_test.h"

using namespace mft;
using namespace mft::MFT_ISA;
using namespace mft_test;

namespace {

constexpr float kLoraScale = 0.5f;

struct Case {
  ExpertsShape shape;
  TestWeight gate_up, down;
  Floats x, logits, bias;
  Floats a_in, b_in, a_out, b_out;  // LoRA

  Case(const ExpertsShape& s, const char* format, bool biased)
      : shape(s),
        gate_up(format, s.experts * 2 * s.inner, s.hidden),
        down(format, s.experts * s.hidden, s.inner),
        x(random_floats(s.t * s.hidden)),
        logits(random_floats(s.t * s.experts)),
        bias(biased ? random_floats(s.experts, 0.3f) : Floats()),
        a_in(random_floats(s.experts * s.rank * s.hidden, 0.3f)),
        b_in(random_floats(2 * s.inner * s.rank * s.experts, 0.3f)),
        a_out(random_floats(s.experts * s.rank * s.inner, 0.3f)),
        b_out(random_floats(s.hidden * s.rank * s.experts, 0.3f)) {}

  ExpertsInput input() const {
    return {x.data(),
            logits.data(),
            bias.empty() ? nullptr : bias.data(),
            gate_up.packed,
            down.packed,
            {a_in.data(), b_in.data()},
            {a_out.data(), b_out.data()},
            kLoraScale};
  }
};

// The experts of a token, and their weights.
std::vector<std::pair<int64_t, double>> choice(const Case& c, const double* logits) {
  const ExpertsShape& s = c.shape;
  Doubles scores(s.experts);
  double total = 0;
  for (int64_t e = 0; e < s.experts; ++e) total += std::exp(logits[e]);
  for (int64_t e = 0; e < s.experts; ++e)
    scores[e] = s.sigmoid ? 1 / (1 + std::exp(-logits[e])) : std::exp(logits[e]) / total;
  std::vector<int64_t> order(s.experts);
  std::iota(order.begin(), order.end(), 0);
  const auto value = [&](int64_t e) { return scores[e] + (c.bias.empty() ? 0. : static_cast<double>(c.bias[e])); };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return value(a) > value(b); });
  double sum = s.sigmoid ? 1e-6 : 0;
  for (int64_t k = 0; k < s.top_k; ++k) sum += scores[order[k]];
  std::vector<std::pair<int64_t, double>> chosen;
  for (int64_t k = 0; k < s.top_k; ++k)
    chosen.emplace_back(order[k], s.scale * scores[order[k]] / (s.normalize ? sum : 1));
  return chosen;
}

// What the output depends on, by which gradients are taken: x, logits, and A and B of both matrices.
using Values = std::vector<Doubles>;

Values values_of(const Case& c) {
  Values values;
  for (const Floats* x : {&c.x, &c.logits, &c.a_in, &c.b_in, &c.a_out, &c.b_out})
    values.emplace_back(x->begin(), x->end());
  return values;
}

// The parts of a matrix with LoRA merged, [experts x rows, columns].
Doubles merged(const ExpertsShape& s, const TestWeight& weight, int64_t rows, int64_t columns, const Doubles& a,
               const Doubles& b) {
  Doubles w(weight.dense.begin(), weight.dense.end());
  for (int64_t e = 0; e < s.experts; ++e) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t r = 0; r < s.rank; ++r) {
        const double factor = kLoraScale * b[(i * s.rank + r) * s.experts + e];
        for (int64_t j = 0; j < columns; ++j)
          w[(e * rows + i) * columns + j] += factor * a[(e * s.rank + r) * columns + j];
      }
    }
  }
  return w;
}

Doubles reference(const Case& c, const Values& values) {
  const ExpertsShape& s = c.shape;
  const Doubles &x = values[0], &logits = values[1];
  const Doubles gate_up = merged(s, c.gate_up, 2 * s.inner, s.hidden, values[2], values[3]);
  const Doubles down = merged(s, c.down, s.hidden, s.inner, values[4], values[5]);
  Doubles y(s.t * s.hidden);
  for (int64_t t = 0; t < s.t; ++t) {
    for (const auto& [e, weight] : choice(c, logits.data() + t * s.experts)) {
      for (int64_t i = 0; i < s.inner; ++i) {
        double gate = 0, up = 0;
        for (int64_t j = 0; j < s.hidden; ++j) {
          gate += gate_up[(e * 2 * s.inner + i) * s.hidden + j] * x[t * s.hidden + j];
          up += gate_up[((2 * e + 1) * s.inner + i) * s.hidden + j] * x[t * s.hidden + j];
        }
        const double inner = weight * gate / (1 + std::exp(-gate)) * up;
        for (int64_t j = 0; j < s.hidden; ++j) y[t * s.hidden + j] += inner * down[(e * s.hidden + j) * s.inner + i];
      }
    }
  }
  return y;
}

void test_case(const Case& c) {
  const ExpertsShape& s = c.shape;
  const Values values = values_of(c);
  const Doubles expected = reference(c, values);
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  TestScratch scratch(experts_scratch_bytes(Compute::kFloat32, s));
  Floats y(expected.size(), kNaN);
  experts_forward(Compute::kFloat32, s, c.input(), y.data(), scratch.get());
  CHECK(error(y, expected) < kTolerance);
  const Floats dy = random_floats(s.t * s.hidden);
  std::vector<Floats> gradients;
  for (const Doubles& of : values) gradients.emplace_back(of.size(), kNaN);
  std::vector<Floats>& d = gradients;
  experts_backward(Compute::kFloat32, s, c.input(), dy.data(), d[0].data(), d[1].data(), {d[2].data(), d[3].data()},
                   {d[4].data(), d[5].data()}, scratch.get());
  // Along random directions, of all together and of each alone, by central differences. A small step keeps the choice
  // of experts.
  constexpr double kStep = 1e-7;
  for (size_t only = 0; only <= values.size(); ++only) {
    if (only < values.size() && values[only].empty()) continue;  // without LoRA
    std::vector<Floats> direction;
    for (size_t of = 0; of < values.size(); ++of) {
      direction.push_back(random_floats(values[of].size()));
      if (only < values.size() && only != of) std::fill(direction[of].begin(), direction[of].end(), 0.f);
    }
    double theirs = 0, ours = 0, size = 0;
    for (const double sign : {1., -1.}) {
      Values moved = values;
      for (size_t of = 0; of < moved.size(); ++of) {
        for (size_t i = 0; i < moved[of].size(); ++i) moved[of][i] += sign * kStep * direction[of][i];
      }
      const Doubles out = reference(c, moved);
      for (size_t i = 0; i < out.size(); ++i) theirs += sign * dy[i] * out[i] / (2 * kStep);
    }
    for (size_t of = 0; of < values.size(); ++of) {
      for (size_t i = 0; i < d[of].size(); ++i) {
        ours += d[of][i] * direction[of][i], size += std::abs(d[of][i] * direction[of][i]);
      }
    }
    CHECK_NEAR(ours, theirs, 1e-4 * size);
  }
}

// Equal logits: the experts with the lowest numbers are chosen, and the others' weights are never read.
void test_ties() {
  Case c({3, 32, 32, 4, 2, false, true, 1.f, 0}, "q4_0", false);
  std::fill(c.logits.begin(), c.logits.end(), 0.5f);
  ExpertsInput in = c.input();
  const Doubles expected = reference(c, values_of(c));
  TestScratch scratch(experts_scratch_bytes(Compute::kFloat32, c.shape));
  Floats y(expected.size()), dx(c.x.size()), dlogits(c.logits.size());
  experts_forward(Compute::kFloat32, c.shape, in, y.data(), scratch.get());
  CHECK(error(y, expected) < kTolerance);
  const Floats dy = random_floats(c.shape.t * c.shape.hidden);
  experts_backward(Compute::kFloat32, c.shape, in, dy.data(), dx.data(), dlogits.data(), {}, {}, scratch.get());
  for (int64_t t = 0; t < c.shape.t; ++t) {
    const float* d = dlogits.data() + t * c.shape.experts;
    CHECK(d[2] == 0 && d[3] == 0);  // a softmax of the chosen ones alone
    CHECK_NEAR(d[0], -d[1], 1e-5 * std::abs(d[0]) + 1e-7);
  }
}

}  // namespace

int run_tests() {
  for (const char* format : {"q4_0", "q8_0", "f16"}) {
    for (const int64_t rank : {0, 3, 16}) {
      test_case({{17, 32, 64, 5, 2, false, false, 1.f, rank}, format, false});
      test_case({{17, 64, 32, 5, 3, false, true, 1.5f, rank}, format, false});
      test_case({{9, 32, 32, 6, 2, true, true, 2.f, rank}, format, true});
    }
  }
  test_case({{1, 32, 32, 8, 1, true, false, 1.f, 0}, "q4_0", true});
  test_case({{40, 32, 32, 3, 3, false, true, 1.f, 4}, "q4_0", false});   // all experts
  test_case({{2, 32, 32, 40, 4, false, false, 1.f, 4}, "q4_0", false});  // most without tokens
  test_ties();
  return finish();
}
