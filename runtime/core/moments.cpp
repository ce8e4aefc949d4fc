#include "runtime/core/moments.h"

#include "runtime/dispatch/kernels.h"
#include "runtime/platform/threads.h"

namespace mft {

Moments::Moments(const AdapterLayout& layout, Optimizer optimizer) : layout_(layout), optimizer_(optimizer) {
  if (optimizer == Optimizer::kAdamW) {
    bytes_ = 2 * layout.size * sizeof(float);
    return;
  }
  for (size_t u = 0; u < layout.units.size(); ++u) {
    first_block_.push_back(blocks_);
    blocks_ += static_cast<size_t>(ceil_div(static_cast<int64_t>(layout.range(u).size()), kMomentBlock));
  }
  bytes_ = 2 * blocks_ * (kMomentBlock + sizeof(float));
}

bool Moments::all_finite(const std::byte* memory) const {
  if (optimizer_ == Optimizer::kAdamW) return mft::all_finite(memory, 2 * layout_.size);
  return mft::all_finite(memory + 2 * blocks_ * kMomentBlock, 2 * blocks_);  // the scales
}

void Moments::step(std::byte* memory, size_t unit, float* parameters, const float* gradients, double lr,
                   float gradient_scale, int64_t step, const AdamWConfig& adamw) const {
  const AdapterLayout::Range range = layout_.range(unit);
  const int64_t n = static_cast<int64_t>(range.size());
  if (optimizer_ == Optimizer::kAdamW) {
    float* first = reinterpret_cast<float*>(memory) + range.begin;
    kernels().adamw_step(parameters, gradients, first, first + layout_.size, n, lr, gradient_scale, step, adamw);
    return;
  }
  const size_t block = first_block_[unit];
  uint8_t* codes = reinterpret_cast<uint8_t*>(memory) + block * kMomentBlock;
  float* scales = reinterpret_cast<float*>(memory + 2 * blocks_ * kMomentBlock) + block;
  kernels().adamw8bit_step(parameters, gradients, {codes, scales}, {codes + blocks_ * kMomentBlock, scales + blocks_},
                           n, lr, gradient_scale, step, adamw);
}

}  // namespace mft
