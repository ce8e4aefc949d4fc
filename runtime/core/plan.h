#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/model.h"
#include "runtime/core/process_memory.h"
#include "runtime/core/train_config.h"

namespace mft {

/// What a run's memory is made of. In the order of `names`, which reports and `mobile-ft profile` use.
enum class Component {
  kCode,
  kWeightsWindow,
  kHeap,
  kLora,
  kNoAdapter,
  kGradients,
  kSpareGradients,
  kOptimizer,
  kKernelScratch,
  kArena,
  kStaging,
  kSavedActivations,
  kActivations,
  kCheckpoints,
  kResidentWeights,
};
constexpr size_t kComponents = 15;
inline std::array<const char*, kComponents> names(Component) {
  return {"code",      "weights_window",    "heap",        "lora",           "no_adapter",
          "gradients", "spare_gradients",   "optimizer",   "kernel_scratch", "arena",
          "staging",   "saved_activations", "activations", "checkpoints",    "resident_weights"};
}
/// Whether it is anonymous memory; else it is pages of files, which the kernel can drop and read again.
bool is_anonymous(Component component);

/// Units that cost the same to store, to recompute and to spill, whatever they compute.
struct UnitGroup {
  std::string name;         // of the first kind of unit in it
  std::vector<bool> kinds;  // which of the bundle's kinds are in it
  int64_t units = 0;        // of a step's selected units, at most
  uint64_t saved = 0;       // bytes that a stored unit leaves
  bool reads_x = false;     // whether it keeps its input besides
  double seconds = 0;       // to compute its forward once more
};

/// What a training run will hold at its peak, and how its units go about their backward. The one description of memory:
/// the trainer allocates what it says.
struct Plan {
  std::array<uint64_t, kComponents> bytes{};  // by Component
  std::vector<UnitGroup> groups;

  // Of a step's selected units, counted from the top: so many of each group store their activations. The others
  // compute them again from their input, the checkpoint; so many keep it in memory, the lowest spill it.
  std::vector<int64_t> stored;
  int64_t checkpoints = 0;
  int64_t spilled = 0;
  size_t resident = 0;       // units whose weights stay mapped; one more: the head's too
  int64_t mlp_tokens = 0;    // that an MLP computes at once, at most
  double relative_time = 1;  // of a step, by operation count, 1 where everything is stored

  uint64_t of(Component component) const { return bytes[static_cast<size_t>(component)]; }
  uint64_t total() const;
  uint64_t anonymous() const;
  /// The group of a unit.
  size_t group_of(const UnitInfo& unit) const;
};

/// Plans a run before anything of it is allocated: of all mixes of store, recompute and spill that `config.backward`
/// and `config.stored_units` allow, and sizes of an MLP's calls, the fastest within `config.budget`, or the smallest
/// where none fits. Without a budget, auto recomputes: to hold little is what this runtime is for. Throws Error where
/// an option is wrong.
Plan plan_training(const Model& model, const TrainConfig& config);
/// The same for a process that holds `now` already.
Plan plan_training(const Model& model, const TrainConfig& config, const ProcessMemory& now);

/// Throws Error with the smallest budget that works where the plan exceeds `budget` bytes; 0 is no limit.
void check_budget(const Plan& plan, uint64_t budget);

/// The most tokens a sequence may have within the budget, at most the bundle's maximum; 0 where none fits.
int64_t longest_sequence(const Model& model, TrainConfig config);

}  // namespace mft
