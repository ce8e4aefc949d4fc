// Quantization in every format: the weighted squared error of all groups is within 2 % of that of a fine search in
// float64, and within 10 % where scales are so small that f16 has few bits for them.

#include <cmath>
#include <cstdlib>

#include "runtime/base/random.h"
#include "runtime/dispatch/kernels.h"
#include "runtime/formats/codebooks.h"
#include "runtime/formats/quantize.h"
#include "runtime/tests/kernels/kernel_test.h"

using namespace mft;
using namespace mft_test;

namespace {

/// What a scale of 1 makes of the codes, in ascending order.
std::vector<double> levels(Code code) {
  std::vector<double> values;
  const auto whole = [&](int low, int high) {
    for (int i = low; i <= high; ++i) values.push_back(i);
  };
  if (code == Code::kQ4_0) whole(-8, 7);
  if (code == Code::kQ4_1) whole(0, 15);
  if (code == Code::kQ8_0) whole(-127, 127);
  if (code == Code::kQ8_1) whole(0, 255);
  if (const float* codebook = traits_of(code).codebook) values.assign(codebook, codebook + 16);
  std::sort(values.begin(), values.end());
  return values;
}

double nearest(const std::vector<double>& values, double x) {
  const auto above = std::lower_bound(values.begin(), values.end(), x);
  if (above == values.begin()) return values.front();
  if (above == values.end()) return values.back();
  return x - above[-1] < above[0] - x ? above[-1] : above[0];
}

/// What f16 makes of a number.
double half(double x) {
  int exponent;
  std::frexp(x, &exponent);
  const double step = std::ldexp(1., std::max(exponent - 11, -24));
  return std::nearbyint(x / step) * step;
}

double error_of(const float* x, const double* weight, int64_t n, const std::vector<double>& values, double scale,
                double minimum) {
  double error = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double d = x[i] - minimum - (scale == 0 ? 0 : scale * nearest(values, (x[i] - minimum) / scale));
    error += weight[i] * d * d;
  }
  return error;
}

/// The smallest error of a group over many scales, and minima.
double searched(Code code, const float* x, const double* weight, int64_t n) {
  const std::vector<double> values = levels(code);
  const bool halves = code != Code::kNF4 && code != Code::kFP4;
  double low = x[0], high = x[0], best = INFINITY;
  const auto attempt = [&](double scale, double minimum) {
    if (halves) scale = half(scale), minimum = half(minimum);
    best = std::min(best, error_of(x, weight, n, values, scale, minimum));
  };
  for (int64_t i = 0; i < n; ++i) {
    low = std::min<double>(low, x[i]);
    high = std::max<double>(high, x[i]);
  }
  const auto further = [](double a, double b) { return std::fabs(a) < std::fabs(b); };
  const double furthest = -values.front() > values.back() ? values.front() : values.back();
  for (int i = 0; i <= 40; ++i) {
    const double factor = 0.6 + 0.0125 * i;
    if (code == Code::kQ4_1) {
      for (int j = 0; j <= 10; ++j) {
        const double width = (high - low) * factor, from = low + (high - low - width) * j / 10;
        attempt(width / values.back(), from);
      }
    } else if (code == Code::kQ8_1) {
      const double width = (high - low) * (1.005 - 0.0005 * i);  // so many codes are best used nearly all
      attempt(width / values.back(), (low + high - width) / 2);
    } else {
      attempt(factor * std::max(low, high, further) / furthest, 0);
    }
  }
  return best;
}

/// What an error in each value of a group counts.
std::vector<double> weights(Format format, const float* x, const float* importance) {
  double square = 0;
  for (int64_t k = 0; k < format.group; ++k) square += static_cast<double>(x[k]) * x[k];
  const bool with_minimum = format.code == Code::kQ4_1 || format.code == Code::kQ8_1;
  std::vector<double> found;
  for (int64_t k = 0; k < format.group; ++k) {
    const double own = static_cast<double>(x[k]) * x[k] * static_cast<double>(format.group) / square;
    found.push_back(importance[k] * (with_minimum ? 1 : std::sqrt(1 + own)));
  }
  return found;
}

Floats random_weights(int64_t count, uint64_t seed) {
  Random random(seed, 0);
  Floats w(static_cast<size_t>(count));
  for (float& x : w) {
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += random.uniform() - 0.5;
    x = static_cast<float>(0.03 * sum * (random.uniform() < 0.02 ? 4 : 1));
  }
  return w;
}

void test_search(const std::string& name, bool weighted, float size) {
  Format format;
  CHECK(parse_format(name, &format));
  const int64_t rows = 37, cols = 256;
  Floats w = random_weights(rows * cols, 5);
  for (float& x : w) x *= size;
  Floats importance(static_cast<size_t>(cols));
  Random random(6, 0);
  for (float& x : importance) x = weighted ? static_cast<float>(std::pow(10, 3 * random.uniform())) : 1.f;
  std::vector<uint8_t> packed(packed_bytes(format, rows, cols));
  CHECK(quantize(w.data(), rows, cols, weighted ? importance.data() : nullptr, format, packed.data()));
  Floats row(static_cast<size_t>(cols));
  double ours = 0, reference = 0;
  for (int64_t r = 0; r < rows; ++r) {
    kernels().decode_row({packed.data(), format, rows, cols}, r, row.data());
    for (int64_t g = 0; g < cols; g += format.group) {
      const float* x = &w[size_t(r * cols + g)];
      const std::vector<double> weight = weights(format, x, &importance[size_t(g)]);
      double error = 0;
      for (int64_t k = 0; k < format.group; ++k) {
        const double d = static_cast<double>(x[k]) - row[size_t(g + k)];
        error += weight[size_t(k)] * d * d;
      }
      const double best = searched(format.code, x, weight.data(), format.group);
      ours += error;
      reference += best;
    }
  }
  CHECK(ours <= (size < 1 ? 1.1 : 1.02) * reference);
}

void test_f16() {
  Format format;
  CHECK(parse_format("f16", &format));
  const Floats w = random_weights(3 * 64, 7);
  std::vector<uint8_t> packed(packed_bytes(format, 3, 64));
  CHECK(quantize(w.data(), 3, 64, nullptr, format, packed.data()));
  Floats row(64);
  for (int64_t r = 0; r < 3; ++r) {
    kernels().decode_row({packed.data(), format, 3, 64}, r, row.data());
    for (size_t k = 0; k < 64; ++k)
      CHECK_NEAR(row[k], w[size_t(r) * 64 + k], std::fabs(w[size_t(r) * 64 + k]) * 0x1p-11 + 0x1p-25);
  }
}

/// Zeros, one value, what is too small or too large.
void test_extremes() {
  for (const std::string& name : format_names()) {
    Format format;
    CHECK(parse_format(name, &format));
    std::vector<uint8_t> packed(packed_bytes(format, 1, 128));
    Floats row(128);
    for (const float value : {0.f, 1.f, -3.5f, 1e-30f, -1e-12f}) {
      Floats w(128, value);
      CHECK(quantize(w.data(), 1, 128, nullptr, format, packed.data()));
      kernels().decode_row({packed.data(), format, 1, 128}, 0, row.data());
      for (const float x : row) CHECK_NEAR(x, value, std::fabs(value) * 1e-3 + 1e-7);
    }
    for (const float value : {1e30f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
      Floats w(128, 0.5f);
      w[77] = value;
      CHECK(!quantize(w.data(), 1, 128, nullptr, format, packed.data()));
    }
  }
}

}  // namespace

int main() {
  for (const std::string& name : format_names()) {
    if (name == "f16") continue;
    for (const float size : {1.f, 1e-2f}) {
      test_search(name, false, size);
      test_search(name, true, size);
    }
  }
  test_f16();
  test_extremes();
  return finish();
}
