#pragma once

#include <cstdint>
#include <string>

#include "runtime/core/schedule.h"

namespace mft {

/// How a selected unit's backward gets what the forward computed; auto: whichever is fastest within the budget, and
/// recompute where there is none.
enum class Backward { kAuto, kStore, kRecompute };

enum class Optimizer { kAdamW, kAdamW8bit };

/// Options of a training run.
struct TrainConfig {
  int64_t steps = 100;
  int64_t seq_len = 256;
  int64_t batch_size = 1;  // sequences a micro-batch
  int64_t grad_accum = 1;  // micro-batches a step
  double lr = 2e-4;
  bool cosine = true;  // else constant
  int64_t warmup_steps = 0;
  double weight_decay = 0.0;
  double max_grad_norm = 1.0;    // 0: no clipping
  bool skip_unselected = false;  // else AdamW goes on moving unselected adapters by their momentum
  Optimizer optimizer = Optimizer::kAdamW;
  Schedule schedule;
  Backward backward = Backward::kAuto;
  uint64_t seed = 0;
  uint64_t budget = 0;       // bytes, 0: none
  std::string spill_folder;  // where checkpoints may be spilled to; empty: nowhere

  int64_t tokens() const { return batch_size * seq_len; }  // of a micro-batch, at most

  /// Whether a unit's update follows right upon its backward, so that one unit's gradients are all there ever are:
  /// where neither accumulation nor a global norm needs them together.
  bool immediate_update() const { return grad_accum == 1 && max_grad_norm == 0; }
};

/// Throws Error naming the option where a value is out of range, or a micro-batch longer than `max_seq_len`.
void check(const TrainConfig& config, int64_t max_seq_len);

}  // namespace mft
