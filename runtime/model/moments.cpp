#include "runtime/model/moments.h"

#include "runtime/dispatch/kernels.h"
#include "runtime/platform/threads.h"

namespace mft {

Moments::Moments(const AdapterLayout& layout, LoraTrain train, Optimizer optimizer) : optimizer_(optimizer) {
  const bool in_blocks = optimizer == Optimizer::kAdamW8bit;
  for (size_t u = 0; u < layout.units.size(); ++u) {
    sizes_.push_back(layout.trained(u, train).size());
    firsts_.push_back(total_);
    total_ += in_blocks ? static_cast<size_t>(ceil_div(static_cast<int64_t>(sizes_[u]), kMomentBlock)) : sizes_[u];
  }
  bytes_ = 2 * total_ * (in_blocks ? kMomentBlock + sizeof(float) : sizeof(float));
}

bool Moments::all_finite(const std::byte* memory) const {
  if (optimizer_ == Optimizer::kAdamW) return mft::all_finite(memory, 2 * total_);
  return mft::all_finite(memory + 2 * total_ * kMomentBlock, 2 * total_);  // the scales
}

void Moments::step(std::byte* memory, size_t unit, float* parameters, const float* gradients, double lr,
                   float gradient_scale, int64_t step, const AdamWConfig& adamw) const {
  const int64_t n = static_cast<int64_t>(sizes_[unit]);
  if (optimizer_ == Optimizer::kAdamW) {
    float* first = reinterpret_cast<float*>(memory) + firsts_[unit];
    kernels().adamw_step(parameters, gradients, first, first + total_, n, lr, gradient_scale, step, adamw);
    return;
  }
  const size_t block = firsts_[unit];
  uint8_t* codes = reinterpret_cast<uint8_t*>(memory) + block * kMomentBlock;
  float* scales = reinterpret_cast<float*>(memory + 2 * total_ * kMomentBlock) + block;
  kernels().adamw8bit_step(parameters, gradients, {codes, scales}, {codes + total_ * kMomentBlock, scales + total_}, n,
                           lr, gradient_scale, step, adamw);
}

}  // namespace mft
