// The fused head and loss against float64.

#include <limits>

#include "runtime/kernels/linear/int8_vec.h"
#include "runtime/kernels/linear/linear_cross_entropy.h"
#include "runtime/tests/kernels/kernel_test.h"

using namespace mft;
using namespace mft::MFT_ISA;
using namespace mft_test;

namespace {

struct Bounds {
  double loss, gradient;
};
// Where logits are large the softmax makes more of their error.
constexpr Bounds kInt8 = {0.01, kWeightMax == 127 ? 0.05 : 0.08};
// Relative to a loss close to 0, and its gradient.
constexpr Bounds kSureFloat32 = {1e-4, 1e-4}, kSureInt8 = {0.03, kWeightMax == 127 ? 0.03 : 0.04};

struct Exact {
  Doubles losses, dx;
};

Exact exact(const TestWeight& w, const Floats& x, const std::vector<int64_t>& targets, double softcap = 0) {
  const int64_t m = static_cast<int64_t>(targets.size()), v = w.packed.rows, k = w.packed.cols;
  Exact result{Doubles(m), Doubles(m * k)};
  auto& [losses, dx] = result;
  for (int64_t i = 0; i < m; ++i) {
    if (targets[i] == -100) continue;
    Doubles p(v), slope(v, 1.);
    double high = -std::numeric_limits<double>::infinity(), total = 0;
    for (int64_t j = 0; j < v; ++j) {
      for (int64_t l = 0; l < k; ++l) p[j] += x[i * k + l] * w.dense[j * k + l];
      if (softcap > 0) {
        const double limited = std::tanh(p[j] / softcap);
        p[j] = softcap * limited, slope[j] = 1 - limited * limited;
      }
      high = std::max(high, p[j]);
    }
    losses[i] = high - p[targets[i]];
    for (double& value : p) total += value = std::exp(value - high);
    losses[i] += std::log(total);
    for (int64_t j = 0; j < v; ++j) {
      const double d = (p[j] / total - (j == targets[i] ? 1. : 0.)) * slope[j];
      for (int64_t l = 0; l < k; ++l) dx[i * k + l] += d * w.dense[j * k + l];
    }
  }
  return result;
}

void check(const TestWeight& w, const Floats& x, const std::vector<int64_t>& targets, Bounds float32, Bounds int8,
           float softcap = 0) {
  const int64_t m = static_cast<int64_t>(targets.size()), v = w.packed.rows, k = w.packed.cols;
  const auto [losses, dx] = exact(w, x, targets, softcap);
  for (const Compute compute : {Compute::kFloat32, Compute::kInt8}) {
    TestScratch scratch(linear_cross_entropy_scratch_bytes(compute, m, v, k));
    Floats each(m, NAN), again(m, NAN), evaluated(m, NAN), out(m * k, NAN), out2(m * k, NAN);
    const auto run = [&](Floats& loss, float* gradient) {
      linear_cross_entropy(compute, x.data(), m, w.packed, targets.data(), softcap, loss.data(), gradient,
                           scratch.get());
    };
    run(each, out.data());
    run(again, out2.data());
    run(evaluated, nullptr);
    const Bounds bounds = compute == Compute::kFloat32 ? float32 : int8;
    CHECK(error(each, losses) < bounds.loss);
    CHECK(error(out, dx) < bounds.gradient);
    CHECK(each == again && each == evaluated && out == out2);
    for (int64_t i = 0; i < m; ++i) CHECK(targets[i] != -100 || each[i] == 0.f);
  }
}

// Every `ignore`-th row has no target (0: all have one); x_scale sets how peaked the softmax is.
void test(const std::string& format, int64_t m, int64_t v, int64_t k, int64_t ignore, float x_scale,
          float softcap = 0) {
  const Floats x = random_floats(m * k, x_scale);
  std::vector<int64_t> targets(m);
  for (int64_t i = 0; i < m; ++i) {
    targets[i] = ignore > 0 && i % ignore == 0 ? -100 : static_cast<int64_t>(rng()() % v);
  }
  check(TestWeight(format.c_str(), v, k), x, targets, {kTolerance, kTolerance}, kInt8, softcap);
}

// Rows that are sure of their targets: what is left of the gradient is far smaller than the target's weights, whose
// rounding must not be felt in it.
void test_sure(const char* format) {
  const int64_t m = 20, v = 700, k = 64;
  const TestWeight w(format, v, k);
  Floats x(m * k);
  std::vector<int64_t> targets(m);
  const auto squares = [&](int64_t row) {
    double sum = 0;
    for (int64_t l = 0; l < k; ++l) sum += w.dense[row * k + l] * w.dense[row * k + l];
    return sum;
  };
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t row = i; row < v; row += m) {
      if (squares(row) >= squares(targets[i])) targets[i] = row;  // a long one, or others win
    }
    const double scale = 13 / squares(targets[i]);
    for (int64_t l = 0; l < k; ++l) x[i * k + l] = static_cast<float>(scale * w.dense[targets[i] * k + l]);
  }
  check(w, x, targets, kSureFloat32, kSureInt8);
}

// Errors of different rows have nothing in common: their sum is no larger than chance makes it. With each probability
// rounded to the nearest code, those of the many small ones would be lost in every row.
void test_unbiased() {
  const int64_t m = 200, v = 3000, k = 64;
  const TestWeight w("q4_1", v, k);  // of numbers that are not 0 on average, as those of embeddings are not
  const Floats x = random_floats(m * k, 0.1f);
  std::vector<int64_t> targets(m);
  for (int64_t& target : targets) target = static_cast<int64_t>(rng()() % v);
  const Doubles dx = exact(w, x, targets).dx;
  TestScratch scratch(linear_cross_entropy_scratch_bytes(Compute::kInt8, m, v, k));
  Floats losses(m), out(m * k);
  linear_cross_entropy(Compute::kInt8, x.data(), m, w.packed, targets.data(), 0, losses.data(), out.data(),
                       scratch.get());
  double of_sum = 0, of_rows = 0;
  for (int64_t l = 0; l < k; ++l) {
    double sum = 0;
    for (int64_t i = 0; i < m; ++i) {
      const double difference = out[i * k + l] - dx[i * k + l];
      sum += difference;
      of_rows += difference * difference;
    }
    of_sum += sum * sum;
  }
  CHECK(of_sum < 3 * of_rows);
}

}  // namespace

int run_tests() {
  for (const char* format : kFormats) {
    const float x_scale = std::string(format).substr(0, 3) == "q8_" ? 0.003f : 0.05f;
    for (const int64_t m : {1, 5, 6, 7, 64, 257}) test(format, m, 500, 64, 3, x_scale);
    test(format, 9, 20, 32, 0, x_scale);
    test(format, 33, 1000, 576, 0, x_scale);
  }
  test("q4_0", 300, 1500, 64, 2, 0.05f);
  for (const char* format : {"q4_0", "q4_1", "nf4_g64", "q8_0"}) test_sure(format);
  // Peaked enough for tiles to be skipped.
  test("q4_0", 3, 5000, 64, 0, 4.f);
  test("q4_0", 40, 700, 64, 3, 0.5f, 4.f);
  test("q4_0", 3, 5000, 64, 0, 0.5f, 30.f);
  test_unbiased();
  // No row with a target.
  test("q4_0", 5, 100, 32, 1, 1.f);
  return finish();
}
