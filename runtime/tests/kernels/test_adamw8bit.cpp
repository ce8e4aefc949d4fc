/// 8-bit AdamW against the definition: moments restored, exact AdamW in double, and the nearest code of a map that is
/// built here once more.

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/base/random.h"
#include "runtime/kernels/storage/adamw8bit.h"
#include "runtime/tests/check.h"

namespace mft::MFT_ISA {
namespace {

/// bitsandbytes' create_dynamic_map: decades from 1e-6 to 1, each with twice as many fractions as the one below.
std::vector<double> expected_map(bool is_signed) {
  std::vector<double> map{0, 1};
  for (int i = 0; i < 7; ++i) {
    const int items = is_signed ? 1 << i : 1 << (i + 1);
    for (int j = 0; j < items; ++j) {
      const double low = 0.1 + 0.9 * j / items, high = 0.1 + 0.9 * (j + 1) / items;
      const double value = std::pow(10.0, i - 6) * (low + high) / 2;
      map.push_back(value);
      if (is_signed) map.push_back(-value);
    }
  }
  std::sort(map.begin(), map.end());
  return map;
}

double nearest(const std::vector<double>& map, double x) {
  return *std::min_element(map.begin(), map.end(),
                           [x](double a, double b) { return std::fabs(a - x) < std::fabs(b - x); });
}

void test_map() {
  for (const bool is_signed : {true, false}) {
    const auto expected = expected_map(is_signed);
    CHECK(expected.size() == 256);
    for (size_t i = 0; i < 256; ++i) {
      CHECK(std::fabs(dynamic_map(is_signed)[i] - expected[i]) <= 1e-6 * std::fabs(expected[i]));
    }
  }
  // The values that bitsandbytes 0.49 prints for its signed map.
  CHECK(std::fabs(dynamic_map(true)[128] - 5.5e-7f) < 1e-12f);
  CHECK(std::fabs(dynamic_map(true)[254] - 0.99296875f) < 1e-6f);
  CHECK(std::fabs(dynamic_map(false)[1] - 3.25e-7f) < 1e-12f);
}

double uniform(Random& random) { return 2 * random.uniform() - 1; }

/// One step after another on parameters whose gradients span many magnitudes; codes are checked each time.
void test_steps(int64_t n) {
  Random random(7, static_cast<uint64_t>(n));
  const auto signed_map = expected_map(true), unsigned_map = expected_map(false);
  const int64_t blocks = (n + kMomentBlock - 1) / kMomentBlock;
  std::vector<float> p(static_cast<size_t>(n)), g(p.size()), m_scales(static_cast<size_t>(blocks)), v_scales(m_scales);
  std::vector<uint8_t> m_codes(p.size()), v_codes(p.size());
  for (float& x : p) x = static_cast<float>(uniform(random));
  AdamWConfig config;
  config.weight_decay = 0.1;
  const double lr = 1e-2, gradient_scale = 0.5;
  for (int64_t step = 1; step <= 4; ++step) {
    for (float& x : g) x = static_cast<float>(uniform(random) * std::pow(10.0, 3 * uniform(random)));
    const bool zero_gradient = step == 3;
    std::vector<double> m(p.size()), v(p.size()), expected(p.size());
    for (size_t i = 0; i < p.size(); ++i) {
      const double grad = zero_gradient ? 0 : gradient_scale * static_cast<double>(g[i]);
      const size_t block = i / kMomentBlock;
      m[i] = config.beta1 * signed_map[m_codes[i]] * static_cast<double>(m_scales[block]) + (1 - config.beta1) * grad;
      v[i] = config.beta2 * unsigned_map[v_codes[i]] * static_cast<double>(v_scales[block]) +
             (1 - config.beta2) * grad * grad;
      const double correction1 = 1 - std::pow(config.beta1, step), correction2 = 1 - std::pow(config.beta2, step);
      const double move = v[i] > 0 ? lr / correction1 * m[i] / (std::sqrt(v[i] / correction2) + config.eps) : 0;
      expected[i] = static_cast<double>(p[i]) * (1 - lr * config.weight_decay) - move;
    }
    adamw8bit_step(p.data(), zero_gradient ? nullptr : g.data(), {m_codes.data(), m_scales.data()},
                   {v_codes.data(), v_scales.data()}, n, lr, static_cast<float>(gradient_scale), step, config);
    for (size_t i = 0; i < p.size(); ++i) {
      CHECK(std::fabs(p[i] - expected[i]) < 1e-5 * (1 + std::fabs(expected[i])));
      const size_t block = i / kMomentBlock;
      // Between two codes rounding decides; either must be as near as the nearest, within float32.
      const double first = m[i] / static_cast<double>(m_scales[block]);
      const double second = v[i] / static_cast<double>(v_scales[block]);
      CHECK(std::fabs(first) <= 1 + 1e-6 && second <= 1 + 1e-6);
      CHECK(std::fabs(signed_map[m_codes[i]] - first) <= std::fabs(nearest(signed_map, first) - first) + 1e-6);
      CHECK(std::fabs(unsigned_map[v_codes[i]] - second) <= std::fabs(nearest(unsigned_map, second) - second) + 1e-6);
    }
  }
}

/// Codes of moments that are exactly the gradient, or its square, in a block whose scale is 1: of all magnitudes, and
/// of what lies just beside each middle between two codes.
void test_nearest() {
  const auto signed_map = expected_map(true), unsigned_map = expected_map(false);
  Random random(11, 0);
  std::vector<float> g;
  for (int i = 0; i < 5000; ++i)
    g.push_back(static_cast<float>(uniform(random) * std::pow(10.0, -9 * random.uniform())));
  for (size_t c = 0; c + 1 < signed_map.size(); ++c) {
    for (const double beside : {1 - 1e-5, 1 + 1e-5}) {
      g.push_back(static_cast<float>((signed_map[c] + signed_map[c + 1]) / 2 * beside));
      g.push_back(static_cast<float>(std::sqrt((unsigned_map[c] + unsigned_map[c + 1]) / 2 * beside)));
    }
  }
  for (size_t at = 0; at < g.size(); at += kMomentBlock) g.insert(g.begin() + static_cast<int64_t>(at), 1.f);
  const size_t blocks = (g.size() + kMomentBlock - 1) / kMomentBlock;
  std::vector<float> p(g.size()), m_scales(blocks), v_scales(blocks);
  std::vector<uint8_t> m_codes(g.size()), v_codes(g.size());
  AdamWConfig config;
  config.beta1 = config.beta2 = 0;
  adamw8bit_step(p.data(), g.data(), {m_codes.data(), m_scales.data()}, {v_codes.data(), v_scales.data()},
                 static_cast<int64_t>(g.size()), 1e-3, 1.f, 1, config);
  const auto is_nearest = [](const std::vector<double>& map, uint8_t code, double x) {
    return std::fabs(map[code] - x) <= std::fabs(nearest(map, x) - x) + 1e-6 * std::fabs(x);
  };
  for (size_t i = 0; i < g.size(); ++i) {
    const double x = static_cast<double>(g[i]);
    CHECK(m_scales[i / kMomentBlock] == 1.f && is_nearest(signed_map, m_codes[i], x));
    CHECK(v_scales[i / kMomentBlock] == 1.f && is_nearest(unsigned_map, v_codes[i], x * x));
  }
}

/// No gradient ever: the parameter only decays.
void test_untouched() {
  std::vector<float> p{1.f, -2.f}, scales(2);
  std::vector<uint8_t> codes(4);
  adamw8bit_step(p.data(), nullptr, {codes.data(), scales.data()}, {codes.data() + 2, scales.data() + 1}, 2, 1e-3, 1.f,
                 1, {});
  CHECK(p[0] == 1.f && p[1] == -2.f);
}

}  // namespace
}  // namespace mft::MFT_ISA

int run_tests() {
  mft::MFT_ISA::test_map();
  mft::MFT_ISA::test_steps(1000);
  mft::MFT_ISA::test_steps(256);
  mft::MFT_ISA::test_steps(3);
  mft::MFT_ISA::test_nearest();
  mft::MFT_ISA::test_untouched();
  return mft_test::finish();
}
