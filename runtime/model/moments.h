#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/bundle/adapter.h"
#include "runtime/config/train_config.h"
#include "runtime/kernels/storage/adamw.h"

namespace mft {

/// AdamW's two moments of every LoRA parameter that is trained, in one block of memory. Float32: first, second. 8 bits:
/// the codes of both, then the scales of both, each unit beginning a block of its own, so that units are updated one by
/// one.
class Moments {
 public:
  Moments(const AdapterLayout& layout, LoraTrain train, Optimizer optimizer);

  size_t bytes() const { return bytes_; }
  /// Whether all numbers in `memory` [bytes()] are finite, as they are after any step that was.
  bool all_finite(const std::byte* memory) const;
  /// One step of what is trained of unit `unit`, whose parameters and gradients these are; `memory` holds `bytes()`
  /// bytes, zeroed before the first step.
  void step(std::byte* memory, size_t unit, float* parameters, const float* gradients, double lr, float gradient_scale,
            int64_t step, const AdamWConfig& adamw) const;

 private:
  Optimizer optimizer_;
  std::vector<size_t> sizes_, firsts_;  // of each unit: its floats, and where they begin, in floats or blocks
  size_t total_ = 0;                    // floats or blocks
  size_t bytes_ = 0;
};

}  // namespace mft
