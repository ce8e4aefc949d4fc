/// Conversion to f16 and back: within half a unit in the last place, saturating, and exact the second time.

#include <cmath>
#include <vector>

#include "runtime/base/random.h"
#include "runtime/kernels/storage/half.h"
#include "runtime/tests/check.h"

namespace mft::MFT_ISA {
namespace {

std::vector<float> there_and_back(const std::vector<float>& x) {
  std::vector<uint16_t> half(x.size());
  std::vector<float> y(x.size());
  to_half(x.data(), static_cast<int64_t>(x.size()), half.data());
  from_half(half.data(), static_cast<int64_t>(x.size()), y.data());
  return y;
}

void test_rounding(size_t n) {
  Random random(3, n);
  std::vector<float> x(n);
  for (float& value : x) {
    value = static_cast<float>((2 * random.uniform() - 1) * std::pow(2.0, std::floor(40 * random.uniform()) - 26));
  }
  const std::vector<float> y = there_and_back(x);
  for (size_t i = 0; i < n; ++i) {
    const double magnitude = std::max(std::fabs(static_cast<double>(x[i])), 0x1p-14);
    CHECK_NEAR(y[i], x[i], std::pow(2.0, std::floor(std::log2(magnitude)) - 11));
  }
  CHECK(there_and_back(y) == y);
}

}  // namespace
}  // namespace mft::MFT_ISA

int run_tests() {
  for (const size_t n : {1, 7, 8, 1000, 40001}) mft::MFT_ISA::test_rounding(n);
  const std::vector<float> y = mft::MFT_ISA::there_and_back({1e6f, -1e6f, INFINITY, -INFINITY, 65504.f, 0.f, NAN});
  CHECK(y[0] == 65504.f && y[1] == -65504.f && y[2] == 65504.f && y[3] == -65504.f && y[4] == 65504.f && y[5] == 0.f);
  CHECK(std::isnan(y[6]));
  return mft_test::finish();
}
