#include "runtime/kernels/storage/adamw.h"

#include <cmath>

#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {
namespace {

constexpr int64_t kStep = 16384;

// The step's constants; passed by value so that stores to p, m, v cannot alias them.
struct Constants {
  float grad_scale;
  float decay;
  float weight1;
  float beta2;
  float weight2;
  float root;
  float eps;
  float minus_rate;
};

template <bool kHasGradient>
void update(float* __restrict p, const float* __restrict g, float* __restrict m, float* __restrict v, int64_t n,
            Constants c) {
  for (int64_t i = 0; i < n; ++i) {
    const float grad = kHasGradient ? g[i] * c.grad_scale : 0.f;
    const float first = m[i] + c.weight1 * (grad - m[i]);
    const float second = v[i] * c.beta2 + c.weight2 * grad * grad;
    m[i] = first;
    v[i] = second;
    p[i] = p[i] * c.decay + c.minus_rate * first / (std::sqrt(second) / c.root + c.eps);
  }
}

}  // namespace

void adamw_step(float* p, const float* g, float* m, float* v, int64_t n, double lr, float grad_scale, int64_t step,
                const AdamWConfig& config) {
  const double correction1 = 1.0 - std::pow(config.beta1, static_cast<double>(step));
  const double correction2 = 1.0 - std::pow(config.beta2, static_cast<double>(step));
  Constants c;
  c.grad_scale = grad_scale;
  c.decay = static_cast<float>(1.0 - lr * config.weight_decay);
  c.weight1 = static_cast<float>(1.0 - config.beta1);
  c.beta2 = static_cast<float>(config.beta2);
  c.weight2 = static_cast<float>(1.0 - config.beta2);
  c.root = static_cast<float>(std::sqrt(correction2));
  c.eps = static_cast<float>(config.eps);
  c.minus_rate = static_cast<float>(-lr / correction1);
  parallel_ranges(n, kStep, [&](int64_t begin, int64_t end) {
    if (g != nullptr) {
      update<true>(p + begin, g + begin, m + begin, v + begin, end - begin, c);
    } else {
      update<false>(p + begin, nullptr, m + begin, v + begin, end - begin, c);
    }
  });
}

double sum_of_squares(const float* x, int64_t n) {
  // Independent sums hide the latency of the addition.
  constexpr int64_t kSums = 8;
  double sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int64_t j = 0; j < kSums; ++j) sums[j] += static_cast<double>(x[i + j]) * x[i + j];
  }
  double total = 0;
  for (; i < n; ++i) total += static_cast<double>(x[i]) * x[i];
  for (const double part : sums) total += part;
  return total;
}

}  // namespace mft::MFT_ISA
