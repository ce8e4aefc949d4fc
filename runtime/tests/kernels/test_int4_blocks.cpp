/// Conversion to 4 bits and back: within half a step of each block's scale but for the far end of the other sign, which
/// may be a step away, and exact the second time.

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/core/random.h"
#include "runtime/kernels/int4_blocks.h"
#include "runtime/tests/check.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t kSize = Int4Block::kSize;

std::vector<float> there_and_back(const std::vector<float>& x) {
  const int64_t n = static_cast<int64_t>(x.size());
  std::vector<Int4Block> blocks(static_cast<size_t>(int4_blocks(n)));
  std::vector<float> y(x.size());
  to_int4(x.data(), n, blocks.data());
  from_int4(blocks.data(), n, y.data());
  return y;
}

void test_rounding(int64_t n) {
  Random random(3, static_cast<uint64_t>(n));
  std::vector<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) {
    const double magnitude = std::pow(10.0, static_cast<double>(i / kSize % 40) - 20);
    x[i] = static_cast<float>((2 * random.uniform() - 1) * magnitude);
  }
  const std::vector<float> y = there_and_back(x);
  for (int64_t b = 0; b < n; b += kSize) {
    const int64_t end = std::min(n, b + kSize);
    double largest = 0;
    for (int64_t i = b; i < end; ++i) largest = std::max(largest, std::fabs(static_cast<double>(x[i])));
    for (int64_t i = b; i < end; ++i) {
      const bool far = std::fabs(x[i]) > largest * 7.4 / 8;
      CHECK_NEAR(y[i], x[i], largest / 8 * (far ? 1.07 : 0.51));
    }
  }
  const std::vector<float> again = there_and_back(y);
  for (size_t i = 0; i < y.size(); ++i) CHECK_NEAR(again[i], y[i], 1e-6 * std::fabs(y[i]));
}

void test_extremes() {
  std::vector<float> x(3 * kSize, 1.f);
  x[5] = NAN;
  x[kSize] = -INFINITY;
  const std::vector<float> y = there_and_back(x);
  for (int64_t i = 0; i < 2 * kSize; ++i) CHECK(std::isnan(y[i]));
  for (int64_t i = 2 * kSize; i < 3 * kSize; ++i) CHECK(y[i] == 1.f);
  for (const float tiny : there_and_back(std::vector<float>(70, 1e-42f))) CHECK(tiny == 0.f);
  for (const float zero : there_and_back(std::vector<float>(70, 0.f))) CHECK(zero == 0.f);
  for (const float huge : {3e38f, -3e38f}) CHECK_NEAR(there_and_back({huge})[0], huge, 3e36);
}

}  // namespace
}  // namespace mft::MFT_ISA

int run_tests() {
  for (const int64_t n : {1, 7, 8, 63, 64, 65, 1000, 40001}) mft::MFT_ISA::test_rounding(n);
  mft::MFT_ISA::test_extremes();
  return mft_test::finish();
}
