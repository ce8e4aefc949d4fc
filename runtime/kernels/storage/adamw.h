#pragma once

#include <cstdint>

namespace mft {

struct AdamWConfig {
  // double, as in torch: 1 - 0.999f is off by 1e-5.
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
};

namespace MFT_ISA {

// One step of torch.optim.AdamW on n parameters p with moments m and v; g may be null (a gradient
// of zero), and is multiplied by grad_scale (for clipping). step counts from 1:
//   p -= lr * weight_decay * p
//   m = m + (1 - beta1) (g - m),  v = beta2 v + (1 - beta2) g^2
//   p -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
void adamw_step(float* p, const float* g, float* m, float* v, int64_t n, double lr, float grad_scale, int64_t step,
                const AdamWConfig& config);

// Sum of x[i]^2, always in the same order.
double sum_of_squares(const float* x, int64_t n);

}  // namespace MFT_ISA
}  // namespace mft
