// Products in 15 bits, of few and of many rows, against float64; LoRA in float16; threads; values that are not finite.

#include <algorithm>
#include <cmath>
#include <string>

#include "runtime/kernels/linear/int15_gemm.h"
#include "runtime/kernels/linear/linear.h"
#include "runtime/kernels/linear/matvec.h"
#include "runtime/tests/kernels/kernel_test.h"

using namespace mft;
using namespace mft::MFT_ISA;
using namespace mft_test;

namespace {

constexpr float kScale = 0.7f;
constexpr double kError = 6e-5;  // of x in 15 bits, in blocks of 32 random numbers: what was measured, with a margin

Floats product(const PackedWeight& w, const Lora* lora, const Floats& x, int64_t m) {
  TestScratch scratch(linear_scratch_bytes(Compute::kInt15, m, w.rows, w.cols, lora != nullptr ? lora->rank : 0));
  Floats y(static_cast<size_t>(m * w.rows), NAN);
  linear_forward(Compute::kInt15, x.data(), m, w, lora, false, y.data(), scratch.get());
  return y;
}

void test_weight(const std::string& format, int64_t m, int64_t n, int64_t k, int64_t rank) {
  const TestWeight weight(format.c_str(), n, k);
  const Floats x = random_floats(m * k), a = random_floats(rank * k, 0.05f), b = random_floats(n * rank);
  const Lora lora{a.data(), b.data(), rank, kScale};
  Doubles branch(m * n), h(m * rank);
  add_product(h, m, rank, k, 1, x, k, 1, a, 1, k);
  add_product(branch, m, n, rank, kScale, h, rank, 1, b, 1, rank);
  Doubles exact = branch;
  add_product(exact, m, n, k, 1, x, k, 1, weight.dense, 1, k);
  const Floats y = product(weight.packed, rank > 0 ? &lora : nullptr, x, m);
  const bool fractions = format.find("fp4") == 0 || format.find("nf4") == 0;  // their codebooks get 14 bits
  CHECK(error(y, exact) < (fractions ? 1e-4 : format == "f16" ? 1e-6 : kError));
}

// The same with LoRA in float16, multiplied by powers of two, and B in panels.
void test_half_lora(int64_t m, int64_t n, int64_t k, int64_t rank) {
  const TestWeight weight("q8_0", n, k);
  const Floats x = random_floats(m * k);
  Floats a = random_floats(rank * k), b = random_floats(n * rank);
  std::vector<uint16_t> half_a(a.size()), half_b(b.size());
  double value;
  for (size_t i = 0; i < a.size(); ++i) half_a[i] = random_half(&value), a[i] = static_cast<float>(value / 4);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < rank; ++j) {
      const int64_t first = i / kPanelRows * kPanelRows, rows = std::min<int64_t>(kPanelRows, n - first);
      half_b[first * rank + j * rows + i - first] = random_half(&value);
      b[i * rank + j] = static_cast<float>(value / 2);
    }
  }
  Lora lora{a.data(), b.data(), rank, kScale};
  const Floats expected = product(weight.packed, &lora, x, m);
  lora.half_a = half_a.data(), lora.half_b = half_b.data(), lora.half_scale = kScale / 8;
  CHECK(error(product(weight.packed, &lora, x, m), Doubles(expected.begin(), expected.end())) < 2e-6);
}

void test_threads() {
  const TestWeight weight("q4_1", 2000, 320);
  const Floats x = random_floats(100 * 320), a = random_floats(8 * 320, 0.05f), b = random_floats(2000 * 8);
  const Lora lora{a.data(), b.data(), 8, kScale};
  for (const int64_t m : {1, 20, 100}) {
    const auto run_in = [&](int64_t count) {
      const ThreadParts parts(count);
      return product(weight.packed, &lora, x, m);
    };
    CHECK(run_in(1) == run_in(3));
  }
}

// A row alone gives the same as among others.
void test_rows(const char* format, int64_t m) {
  const int64_t n = 72, k = 384;
  const TestWeight weight(format, n, k);
  if (m > kMatvecRows && !int15_is_faster(weight.packed)) return;
  const Floats x = random_floats(m * k), all = product(weight.packed, nullptr, x, m);
  for (int64_t r = 0; r < m; r += 5) {
    const Floats alone = product(weight.packed, nullptr, Floats(x.begin() + r * k, x.begin() + (r + 1) * k), 1);
    CHECK(std::equal(alone.begin(), alone.end(), all.begin() + r * n));
  }
}

// The codes of x that a product left serve the next one, after which they are the same.
void test_same_x(int64_t m) {
  const TestWeight first("q4_0", 48, 320), second("iq4_nl", 80, 320);
  const Floats x = random_floats(m * 320), expected = product(second.packed, nullptr, x, m);
  TestScratch scratch(std::max(linear_scratch_bytes(Compute::kInt15, m, 48, 320, 0),
                               linear_scratch_bytes(Compute::kInt15, m, 80, 320, 0)));
  Floats y(static_cast<size_t>(m * 80));
  const bool left = linear_forward(Compute::kInt15, x.data(), m, first.packed, nullptr, false, y.data(), scratch.get());
  CHECK(left == (m <= kMatvecRows || int15_is_faster(first.packed)));
  linear_forward(Compute::kInt15, x.data(), m, second.packed, nullptr, left, y.data(), scratch.get());
  CHECK(y == expected);
}

void test_not_finite() {
  for (const char* format : {"q4_0", "nf4", "f16"}) {
    const TestWeight weight(format, 48, 96);
    for (const int64_t m : {2, 20}) {
      for (const float bad : {NAN, INFINITY, -INFINITY}) {
        Floats x = random_floats(m * 96);
        x[96 + 70] = bad;
        const Floats y = product(weight.packed, nullptr, x, m);
        for (int64_t i = 0; i < m * 48; ++i) CHECK(std::isfinite(y[i]) == (i / 48 != 1));
      }
    }
    for (const float v : product(weight.packed, nullptr, Floats(96), 1)) CHECK(v == 0.f);
  }
}

}  // namespace

int run_tests() {
  for (const char* format : kFormats) {
    for (int64_t m = 1; m <= kMatvecRows; ++m) test_weight(format, m, 16 * (m % 3 + 1), 32 * m, m % 2 * 4);
    test_weight(format, 1, 4096, 576, 16);
    for (const int64_t m : {9, 23, 96, 200}) test_weight(format, m, 16 * (m % 3) + 8, 32 * (m % 19), m % 2 * 5);
    test_weight(format, 40, 300, 576, 16);
    for (const int64_t m : {8, 9, 25, 100}) test_rows(format, m);
    if (std::string(format) == "f16") continue;
    for (const int64_t m : {3, 30}) {
      for (const char* group : {"_g16", "_g64", "_g128"}) test_weight(format + std::string(group), m, 48, 384, 3);
      test_weight(format + std::string("_g16"), m, 32, 48, 0);  // half a block at the end
    }
  }
  test_half_lora(1, 48, 96, 16);
  test_half_lora(3, 2000, 320, 5);
  test_half_lora(2, 25, 64, 4);
  test_threads();
  for (const int64_t m : {4, 20, 100}) test_same_x(m);
  test_not_finite();
  return finish();
}
