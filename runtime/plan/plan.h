#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/base/process_memory.h"
#include "runtime/config/train_config.h"
#include "runtime/model/model.h"
#include "runtime/plan/activation_policy.h"
#include "runtime/plan/component.h"
#include "runtime/plan/throughput.h"

namespace mft {

/// What a training run will hold at its peak, and how its units go about their backward. The one description of memory:
/// the trainer allocates what it says.
struct Plan {
  std::array<uint64_t, kComponents> bytes{};  // by Component
  std::vector<UnitGroup> groups;

  // Of the units whose backward a step runs, counted from the top: so many of each group store their activations. The
  // others compute them again from their input, the checkpoint; so many keep it in memory, the lowest offload it.
  std::vector<int64_t> stored;
  int64_t checkpoints = 0;
  int64_t offloaded = 0;
  size_t resident = 0;     // units whose weights stay mapped; one more: the head's too
  int64_t mlp_tokens = 0;  // that an MLP computes at once, at most
  double seconds = 0;      // of a step, estimated; `read_seconds` of them to read weights from storage
  double read_seconds = 0;
  double relative_time = 1;  // of a step, 1 where everything is stored and all weights stay in memory

  uint64_t of(Component component) const { return bytes[static_cast<size_t>(component)]; }
  uint64_t total() const;
  uint64_t anonymous() const;
  /// The group of a unit.
  size_t group_of(const UnitInfo& unit) const;
};

/// Plans a run before anything of it is allocated: of all policies of store, recompute and offload that
/// `config.backward` and `config.stored_units` allow, and sizes of an MLP's calls, the fastest within `config.budget`,
/// or the smallest where none fits. Without a budget, auto recomputes: to hold little is what this runtime is for.
/// Throws Error where an option is wrong.
Plan plan_training(const Model& model, const TrainConfig& config);
/// The same for a process that holds `now` already, on a machine of this throughput.
Plan plan_training(const Model& model, const TrainConfig& config, const ProcessMemory& now,
                   const Throughput& throughput);

/// By how much starts of the same program differ in how many pages of its files they find mapped: 0.17 MB of 80.
constexpr uint64_t kStartSpread = uint64_t{1} << 18;

/// Throws Error with the smallest budget that works where the plan exceeds `budget` bytes; 0 is no limit.
void check_budget(const Plan& plan, uint64_t budget);

/// The most tokens a sequence may have within the budget, at most the bundle's maximum; 0 where none fits.
int64_t longest_sequence(const Model& model, TrainConfig config, const Throughput& throughput);

}  // namespace mft
