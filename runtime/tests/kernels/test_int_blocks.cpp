/// Conversion to blocks of 8 and 4 bits and back: within half a step of each block's scale, and exact the second time.

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/base/random.h"
#include "runtime/kernels/storage/int4_blocks.h"
#include "runtime/kernels/storage/int8_blocks.h"
#include "runtime/tests/check.h"

namespace mft::MFT_ISA {
namespace {

using Floats = std::vector<float>;

template <typename Block, void (*kTo)(const float*, int64_t, Block*), void (*kFrom)(const Block*, int64_t, float*)>
Floats there_and_back(const Floats& x) {
  const int64_t n = static_cast<int64_t>(x.size());
  std::vector<Block> blocks(static_cast<size_t>((n + Block::kSize - 1) / Block::kSize));
  Floats y(x.size());
  kTo(x.data(), n, blocks.data());
  kFrom(blocks.data(), n, y.data());
  return y;
}

struct Kind {
  Floats (*there_and_back)(const Floats& x);
  int64_t size;        // of a block
  double steps;        // from 0 to the largest number
  double far;          // steps that the other end may be off, for want of a code there
  double scale_error;  // of the scale, relative
};

const Kind kKinds[] = {{there_and_back<Int8Block, to_int8, from_int8>, Int8Block::kSize, 127, 0.5, 1e-5},
                       {there_and_back<Int4Block, to_int4, from_int4>, Int4Block::kSize, 8, 1.07, 0.01}};

void test_rounding(const Kind& kind, int64_t n) {
  Random random(3, static_cast<uint64_t>(n));
  Floats x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) {
    const double magnitude = std::pow(10.0, static_cast<double>(static_cast<int64_t>(i) / kind.size % 40) - 20);
    x[i] = static_cast<float>((2 * random.uniform() - 1) * magnitude);
  }
  const Floats y = kind.there_and_back(x);
  for (int64_t b = 0; b < n; b += kind.size) {
    const int64_t end = std::min(n, b + kind.size);
    double largest = 0;
    for (int64_t i = b; i < end; ++i) largest = std::max(largest, std::fabs(static_cast<double>(x[i])));
    for (int64_t i = b; i < end; ++i) {
      const bool far = std::fabs(x[i]) > largest * (1 - 0.6 / kind.steps);
      CHECK_NEAR(y[i], x[i], largest / kind.steps * (far ? kind.far : 0.5) * (1 + 10 * kind.scale_error));
    }
  }
  const Floats again = kind.there_and_back(y);
  for (size_t i = 0; i < y.size(); ++i) CHECK_NEAR(again[i], y[i], 1e-6 * std::fabs(y[i]));
}

void test_extremes(const Kind& kind) {
  Floats x(static_cast<size_t>(3 * kind.size), 1.f);
  x[5] = NAN;
  x[static_cast<size_t>(kind.size)] = -INFINITY;
  const Floats y = kind.there_and_back(x);
  for (int64_t i = 0; i < 2 * kind.size; ++i) CHECK(std::isnan(y[i]));
  for (int64_t i = 2 * kind.size; i < 3 * kind.size; ++i) CHECK(y[i] == 1.f);
  for (const float tiny : kind.there_and_back(Floats(70, 1e-42f))) CHECK(tiny == 0.f);
  for (const float zero : kind.there_and_back(Floats(70, 0.f))) CHECK(zero == 0.f);
  for (const float huge : {3e38f, -3e38f}) CHECK_NEAR(kind.there_and_back({huge})[0], huge, 3e38 * kind.scale_error);
}

}  // namespace
}  // namespace mft::MFT_ISA

int run_tests() {
  for (const auto& kind : mft::MFT_ISA::kKinds) {
    for (const int64_t n : {1, 7, 8, 63, 64, 65, 1000, 40001}) mft::MFT_ISA::test_rounding(kind, n);
    mft::MFT_ISA::test_extremes(kind);
  }
  return mft_test::finish();
}
