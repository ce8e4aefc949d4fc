#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/model.h"
#include "runtime/core/train_config.h"

namespace mft {

/// What a training run will hold at its peak, and how its units go about their backward. The one description of memory:
/// the trainer allocates what it says.
struct Plan {
  struct Component {
    std::string name;
    uint64_t bytes;
    bool anonymous;  // else pages of files, which the kernel can drop and read again
  };
  std::vector<Component> components;

  // Of a step's selected units, counted from the top: so many attention and MLP units store their activations. The
  // others compute them again from their input, the checkpoint; so many keep it in memory, the lowest spill it.
  int64_t stored_attn = 0;
  int64_t stored_mlp = 0;
  int64_t checkpoints = 0;
  int64_t spilled = 0;
  size_t resident = 0;       // units whose weights stay mapped; one more: the head's too
  double relative_time = 1;  // of a step, by operation count, 1 where everything is stored

  uint64_t bytes(const std::string& component) const;
  uint64_t total() const;
  uint64_t anonymous() const;
};

/// Plans a run before anything of it is allocated: of all mixes of store, recompute and spill that `config.backward`
/// allows, the fastest within `config.budget`, or the smallest where none fits. Without a budget, auto recomputes: to
/// hold little is what this runtime is for. Throws Error where an option is wrong.
Plan plan_training(const Model& model, const TrainConfig& config);

/// Throws Error with the smallest budget that works where the plan exceeds `budget` bytes; 0 is no limit.
void check_budget(const Plan& plan, uint64_t budget);

/// The most tokens a sequence may have within the budget, at most the bundle's maximum; 0 where none fits.
int64_t longest_sequence(const Model& model, TrainConfig config);

}  // namespace mft
