#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/config/train_config.h"
#include "runtime/model/model.h"
#include "runtime/plan/activation_policy.h"
#include "runtime/plan/component.h"
#include "runtime/plan/throughput.h"
#include "runtime/platform/process_memory.h"

namespace mft {

/// The peak memory of a training run, and the activation policy of its units. The trainer allocates exactly this
/// memory.
struct Plan {
  std::array<uint64_t, kComponents> bytes{};  // index: Component
  std::vector<UnitGroup> groups;

  // Among the units whose backward a step runs, counted from the top, this many of each group store their activations.
  // The others recompute them from their input, the checkpoint. This many keep it in memory; the lowest units offload
  // it.
  std::vector<int64_t> stored;
  int64_t checkpoints = 0;
  int64_t offloaded = 0;
  size_t resident = 0;     // units whose weights stay mapped; the head counts as one more
  int64_t mlp_tokens = 0;  // maximum tokens that an MLP computes at once
  double seconds = 0;      // estimated time of a step, including `read_seconds` to read weights from storage
  double read_seconds = 0;
  double relative_time = 1;  // relative to a step that stores everything, with all weights in memory

  uint64_t of(Component component) const { return bytes[static_cast<size_t>(component)]; }
  uint64_t total() const;
  uint64_t anonymous() const;
  /// Returns the group of a unit.
  size_t group_of(const UnitInfo& unit) const;
};

/// Plans a run before it allocates memory. Searches all policies (store, recompute, offload) that `config.backward` and
/// `config.stored_units` allow, and all sizes of an MLP's calls. Returns the fastest within `config.budget`, or the
/// smallest if none fits. Without a budget, auto recomputes, to use little memory. Throws Error if an option is wrong.
Plan plan_training(const Model& model, const TrainConfig& config);
/// The same for a process that already uses the memory `now`, on a machine of this throughput.
Plan plan_training(const Model& model, const TrainConfig& config, const ProcessMemory& now,
                   const Throughput& throughput);

/// Variation of the mapped file pages between starts of the same program: up to 0.39 MB in 60 starts.
constexpr uint64_t kStartSpread = uint64_t{1} << 19;

/// Throws Error with the smallest budget that works if the plan exceeds the configuration's. 0 means no limit.
void check_budget(const Plan& plan, const TrainConfig& config);

/// The longest sequence that fits the budget, at most the bundle's maximum; 0 if none fits.
int64_t longest_sequence(const Model& model, TrainConfig config, const Throughput& throughput);

}  // namespace mft
