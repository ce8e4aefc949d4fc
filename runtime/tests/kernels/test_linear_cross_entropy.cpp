// The fused head and loss against float64.

#include <limits>

#include "runtime/kernels/int8_vec.h"
#include "runtime/kernels/linear_cross_entropy.h"
#include "runtime/tests/kernels/kernel_test.h"

using namespace mft;
using namespace mft::MFT_ISA;
using namespace mft_test;

namespace {

// Where logits are large the softmax makes more of their error.
constexpr double kInt8LossError = 0.01;
constexpr double kInt8GradientError = kWeightMax == 127 ? 0.05 : 0.08;

// Every `ignore`-th row has no target (0: all have one); x_scale sets how peaked the softmax is.
void test(const std::string& format, int64_t m, int64_t v, int64_t k, int64_t ignore, float x_scale) {
  const TestWeight w(format.c_str(), v, k);
  const Floats x = random_floats(m * k, x_scale);
  std::vector<int64_t> targets(m);
  for (int64_t i = 0; i < m; ++i) {
    targets[i] = ignore > 0 && i % ignore == 0 ? -100 : static_cast<int64_t>(rng()() % v);
  }
  Doubles losses(m), dx(m * k);
  for (int64_t i = 0; i < m; ++i) {
    if (targets[i] == -100) continue;
    Doubles p(v);
    double high = -std::numeric_limits<double>::infinity(), total = 0;
    for (int64_t j = 0; j < v; ++j) {
      for (int64_t l = 0; l < k; ++l) p[j] += x[i * k + l] * w.dense[j * k + l];
      high = std::max(high, p[j]);
    }
    losses[i] = high - p[targets[i]];
    for (double& value : p) total += value = std::exp(value - high);
    losses[i] += std::log(total);
    for (int64_t j = 0; j < v; ++j) {
      const double d = p[j] / total - (j == targets[i] ? 1. : 0.);
      for (int64_t l = 0; l < k; ++l) dx[i * k + l] += d * w.dense[j * k + l];
    }
  }
  for (const Compute compute : {Compute::kFloat32, Compute::kInt8}) {
    TestScratch scratch(linear_cross_entropy_scratch_bytes(compute, m, v, k));
    Floats each(m, NAN), again(m, NAN), evaluated(m, NAN), out(m * k, NAN), out2(m * k, NAN);
    const auto run = [&](Floats& loss, float* gradient) {
      linear_cross_entropy(compute, x.data(), m, w.packed, targets.data(), loss.data(), gradient, scratch.get());
    };
    run(each, out.data());
    run(again, out2.data());
    run(evaluated, nullptr);
    const bool exact = compute == Compute::kFloat32;
    CHECK(error(each, losses) < (exact ? kTolerance : kInt8LossError));
    CHECK(error(out, dx) < (exact ? kTolerance : kInt8GradientError));
    CHECK(each == again && each == evaluated && out == out2);
    for (int64_t i = 0; i < m; ++i) CHECK(targets[i] != -100 || each[i] == 0.f);
  }
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
  // Peaked enough for tiles to be skipped.
  test("q4_0", 3, 5000, 64, 0, 4.f);
  // No row with a target.
  test("q4_0", 5, 100, 32, 1, 1.f);
  return finish();
}
