#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/core/adapter.h"
#include "runtime/core/train_config.h"
#include "runtime/kernels/adamw.h"

namespace mft {

/// AdamW's two moments of every LoRA parameter, in one block of memory. Float32: first, second. 8 bits: the codes of
/// both, then the scales of both, each unit beginning a block of its own, so that units are updated one by one.
class Moments {
 public:
  Moments(const AdapterLayout& layout, Optimizer optimizer);

  size_t bytes() const { return bytes_; }
  /// Whether all numbers in `memory` [bytes()] are finite, as they are after any step that was.
  bool all_finite(const std::byte* memory) const;
  /// One step of unit `unit`; `memory` holds `bytes()` bytes, zeroed before the first step.
  void step(std::byte* memory, size_t unit, float* parameters, const float* gradients, double lr, float gradient_scale,
            int64_t step, const AdamWConfig& adamw) const;

 private:
  const AdapterLayout& layout_;
  Optimizer optimizer_;
  std::vector<size_t> first_block_;  // of each unit
  size_t blocks_ = 0;
  size_t bytes_ = 0;
};

}  // namespace mft
