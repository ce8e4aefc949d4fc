#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/config/train_config.h"
#include "runtime/model/model.h"
#include "runtime/plan/component.h"
#include "runtime/plan/throughput.h"
#include "runtime/plan/unit_groups.h"
#include "runtime/platform/process_memory.h"

namespace mft {

/// Activation checkpointing of a step: how many units store their activations, keep their input (the checkpoint) in
/// memory, or offload it to a file; and what that costs in memory and time:
///
///   total   = fixed + arena + staging if anything is stored + saved + (buffers + checkpoints) * bytes of x
///   seconds = step that stores everything + recomputed forwards + offloaded inputs, written and read
///             + weights that the rest of the budget cannot keep in memory, read
struct ActivationPolicy {
  std::vector<int64_t> stored;  // units of each group
  uint64_t total = 0;           // bytes of everything but resident weights
  uint64_t arena = 0;
  uint64_t saved = 0;
  int64_t buffers = 2;  // of activations: two that units read and write in turn, one to read offloaded inputs into
  int64_t checkpoints = 0;
  int64_t offloaded = 0;
  double seconds = 0;       // of a step
  double read_seconds = 0;  // of these, for weights from storage
};

/// Memory and time of any policy of a run in which an MLP computes `mlp_tokens` at once.
class PolicyCosts {
 public:
  PolicyCosts(const Model& model, const TrainConfig& config, const ProcessMemory& now, const Throughput& throughput,
              int64_t mlp_tokens);

  /// The policy that stores `stored` units of each group and keeps as many of the others' checkpoints in memory as
  /// there is room.
  ActivationPolicy of(const std::vector<int64_t>& stored);

  const std::vector<UnitGroup>& groups() const { return groups_; }
  /// Bytes of what is the same in every policy, by Component.
  const std::array<uint64_t, kComponents>& fixed() const { return fixed_; }
  uint64_t activation_bytes() const { return activation_; }
  /// That kernel scratch grows by, if anything is stored.
  uint64_t staging_bytes() const { return staging_; }
  /// Of a step that stores everything, with all weights in memory and calls as large as can be.
  double least_seconds() const { return least_seconds_; }
  bool fits(const ActivationPolicy& policy) const { return policy.total <= config_.budget; }

 private:
  struct Recomputed {
    int64_t units = 0;   // that keep or offload their input
    int64_t beside = 0;  // stored units that keep their input too
    double seconds = 0;
  };

  void set(Component component, uint64_t bytes) { fixed_[static_cast<size_t>(component)] = bytes; }
  void add_times(const UnitTimes& times, double share);
  void set_fixed(const ProcessMemory& now, const Selectable& selectable, int64_t run);
  Recomputed recomputed(const std::vector<int64_t>& stored) const;
  uint64_t saved_bytes(const std::vector<int64_t>& stored) const;
  double read_seconds(const ActivationPolicy& policy) const;
  uint64_t arena(const std::vector<int64_t>& stored);

  const Model& model_;
  const TrainConfig& config_;
  const Throughput throughput_;
  const int64_t mlp_tokens_;
  uint64_t activation_ = 0;  // bytes of x
  uint64_t staging_ = 0;
  std::vector<UnitGroup> groups_;
  std::vector<size_t> by_saved_;  // the groups, those whose units leave most first
  int64_t selected_units_ = 0;    // whose backward a step runs, at most
  int64_t least_buffers_ = 2;     // of activations
  double stored_seconds_ = 0;     // of a step that stores everything
  double least_seconds_ = 0;
  uint64_t weight_bytes_ = 0;  // of units and head
  double passed_bytes_ = 0;    // of them, as often as a step passes over them
  std::array<uint64_t, kComponents> fixed_{};
  uint64_t fixed_total_ = 0;
  std::map<std::vector<int>, uint64_t> arenas_;
};

}  // namespace mft
