#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/model.h"
#include "runtime/core/schedule.h"

namespace mft {

/// How a selected unit's backward gets what the forward computed.
enum class Backward { kAuto, kStore, kRecompute };

/// What a training run will hold at its peak, component by component, in bytes.
struct Plan {
  std::vector<std::pair<std::string, uint64_t>> components;
  int64_t stored_layers = 0;  // of the selected layers, counted from the top, keep their activations
  uint64_t total() const;
};

/// Plans a run with micro-batches of `tokens` tokens, before anything of it is allocated. Gradients need a second,
/// unit-sized buffer where `accumulate` (more than one micro-batch a step). `kAuto` stores the activations of as many
/// layers as the budget (bytes, 0: no limit) has room for: storing a layer saves its recomputation.
Plan plan_training(const Model& model, const Schedule& schedule, int64_t tokens, bool accumulate, Backward backward,
                   uint64_t budget);

/// Throws Error with the smallest budget that works where the plan exceeds `budget` bytes; 0 is no limit.
void check_budget(const Plan& plan, uint64_t budget);

}  // namespace mft
