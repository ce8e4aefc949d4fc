// Products of a few rows with a weight: against float64 with x rounded to 8 bits in blocks as matvec.h says, which they
// differ from by float32's rounding alone, and with x as it is; threads; values that are not finite.

#include <algorithm>
#include <cmath>
#include <string>

#include "runtime/kernels/linear/linear.h"
#include "runtime/kernels/linear/matvec.h"
#include "runtime/tests/kernels/kernel_test.h"

using namespace mft;
using namespace mft::MFT_ISA;
using namespace mft_test;

namespace {

constexpr float kScale = 0.7f;

Floats product(const PackedWeight& w, const Lora* lora, const Floats& x, int64_t m) {
  TestScratch scratch(linear_scratch_bytes(Compute::kInt8, m, w.rows, w.cols, lora != nullptr ? lora->rank : 0));
  Floats y(static_cast<size_t>(m * w.rows), NAN);
  linear_forward(Compute::kInt8, x.data(), m, w, lora, false, y.data(), scratch.get());
  return y;
}

// x [m, k] rounded to codes of 8 bits that share a scale in blocks.
Doubles rounded(const Floats& x, int64_t m, int64_t k) {
  Doubles out(x.size());
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t b = 0; b < k; b += kMatvecBlock) {
      const int64_t end = std::min(k, b + kMatvecBlock);
      float most = 0;
      for (int64_t i = b; i < end; ++i) most = std::max(most, std::abs(x[r * k + i]));
      for (int64_t i = b; i < end; ++i) {
        out[r * k + i] = most > 0 ? std::nearbyint(x[r * k + i] * (127.f / most)) * (most / 127.f) : 0;
      }
    }
  }
  return out;
}

void test_weight(const std::string& format, int64_t m, int64_t n, int64_t k, int64_t rank) {
  const TestWeight weight(format.c_str(), n, k);
  const Floats x = random_floats(m * k), a = random_floats(rank * k, 0.05f), b = random_floats(n * rank);
  const Lora lora{a.data(), b.data(), rank, kScale};
  Doubles branch(m * n), h(m * rank);
  add_product(h, m, rank, k, 1, x, k, 1, a, 1, k);
  add_product(branch, m, n, rank, kScale, h, rank, 1, b, 1, rank);
  Doubles exact = branch, coded = branch;
  add_product(exact, m, n, k, 1, x, k, 1, weight.dense, 1, k);
  add_product(coded, m, n, k, 1, rounded(x, m, k), k, 1, weight.dense, 1, k);
  const Floats y = product(weight.packed, rank > 0 ? &lora : nullptr, x, m);
  const bool floats = format == "f16", fractions = format.find("fp4") == 0 || format.find("nf4") == 0;
  // Codebooks of fractions have 8 bits, too.
  CHECK(error(y, floats ? exact : coded) < (fractions ? 0.01 : 2e-6));
  CHECK(error(y, exact) < 0.02);
}

void test_threads() {
  const TestWeight weight("q4_1", 2000, 320);
  const Floats x = random_floats(320);
  const auto run_in = [&](int64_t count) {
    const ThreadParts parts(count);
    return product(weight.packed, nullptr, x, 1);
  };
  CHECK(run_in(1) == run_in(3));
}

// A row alone gives the same as among others.
void test_rows() {
  const TestWeight weight("iq4_nl", 64, 160);
  const Floats x = random_floats(kMatvecRows * 160), all = product(weight.packed, nullptr, x, kMatvecRows);
  for (int64_t r = 0; r < kMatvecRows; ++r) {
    const Floats alone = product(weight.packed, nullptr, Floats(x.begin() + r * 160, x.begin() + (r + 1) * 160), 1);
    CHECK(std::equal(alone.begin(), alone.end(), all.begin() + r * 64));
  }
}

void test_not_finite() {
  for (const char* format : {"q4_0", "f16"}) {
    const TestWeight weight(format, 48, 96);
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      Floats x = random_floats(2 * 96);
      x[96 + 70] = bad;
      const Floats y = product(weight.packed, nullptr, x, 2);
      for (int64_t j = 0; j < 48; ++j) CHECK(std::isfinite(y[j]) && !std::isfinite(y[48 + j]));
    }
    for (const float v : product(weight.packed, nullptr, Floats(96), 1)) CHECK(v == 0.f);
  }
}

}  // namespace

int run_tests() {
  for (const char* format : kFormats) {
    for (int64_t m = 1; m <= kMatvecRows; ++m) test_weight(format, m, 16 * (m % 3 + 1), 32 * m, m % 2 * 4);
    test_weight(format, 1, 4096, 576, 16);
    if (std::string(format) == "f16") continue;
    for (const char* group : {"_g16", "_g64", "_g128"}) test_weight(format + std::string(group), 3, 48, 384, 3);
    test_weight(format + std::string("_g16"), 2, 32, 48, 0);  // half a block at the end
  }
  test_threads();
  test_rows();
  test_not_finite();
  return finish();
}
