#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/core/component.h"
#include "runtime/core/model.h"
#include "runtime/core/process_memory.h"
#include "runtime/core/rates.h"
#include "runtime/core/train_config.h"

namespace mft {

/// Units that cost the same to store, to recompute and to spill, whatever they compute.
struct UnitGroup {
  std::string name;         // of the first kind of unit in it
  std::vector<bool> kinds;  // which of the bundle's kinds are in it
  int64_t units = 0;        // of those whose backward a step runs, at most
  uint64_t saved = 0;       // bytes that a stored unit leaves
  bool reads_x = false;     // whether it keeps its input besides
  double seconds = 0;       // to compute its forward once more
};

/// A way for a step's units to go about their backward, and what of it takes memory and time.
struct Mix {
  std::vector<int64_t> stored;  // units of each group
  uint64_t total = 0;           // bytes of everything but resident weights
  uint64_t arena = 0;
  uint64_t saved = 0;
  int64_t buffers = 2;  // of activations: two that units read and write in turn, one for reading back what was spilled
  int64_t checkpoints = 0;
  int64_t spilled = 0;
  double seconds = 0;       // of a step
  double read_seconds = 0;  // of these, for weights from storage
};

/// What the mixes of a run cost where an MLP takes `mlp_tokens` at once.
class MixCosts {
 public:
  MixCosts(const Model& model, const TrainConfig& config, const ProcessMemory& now, const Rates& rates,
           int64_t mlp_tokens);

  /// The mix that stores `stored` units of each group and keeps as many of the others' checkpoints in memory as there
  /// is room.
  Mix of(const std::vector<int64_t>& stored);

  const std::vector<UnitGroup>& groups() const { return groups_; }
  /// Bytes of what is the same in every mix, by Component.
  const std::array<uint64_t, kComponents>& fixed() const { return fixed_; }
  uint64_t activation_bytes() const { return activation_; }
  /// That kernel scratch grows by, if anything is stored.
  uint64_t staging_bytes() const { return staging_; }
  /// Of a step that stores everything, with all weights in memory and calls as large as can be.
  double least_seconds() const { return least_seconds_; }
  bool fits(const Mix& mix) const { return mix.total <= config_.budget; }

 private:
  void set(Component component, uint64_t bytes) { fixed_[static_cast<size_t>(component)] = bytes; }
  uint64_t arena(const std::vector<int64_t>& stored);

  const Model& model_;
  const TrainConfig& config_;
  const Rates rates_;
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
