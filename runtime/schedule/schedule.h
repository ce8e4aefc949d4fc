#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mft {

/// How lcsb selects layers.
enum class Selection { kRandom, kContiguous, kStrided };
inline std::vector<const char*> names(Selection) { return {"random", "contiguous", "strided"}; }

struct Schedule;

/// How layers are treated that a step did not select. Below the lowest selected layer, nothing runs.
enum class Rest {
  kIdentity,       // they pass the gradient on unchanged; AdamW's momentum may still update them
  kFrozen,         // they pass the gradient on unchanged and are not updated
  kPassedThrough,  // their backward runs to compute the gradient of their input; they are not updated
};

/// A rule that selects the trained layers or units of a step, out of `layers` layers or units. `step` counts from 0.
/// The selection depends only on (schedule, step), so a resumed run makes the same selections.
struct ScheduleRule {
  const char* name;
  std::vector<bool> (*select)(const Schedule& schedule, int64_t step, int64_t layers);
  /// The maximum number of layers that a step selects, for which memory is planned.
  int64_t (*most_selected)(const Schedule& schedule, int64_t layers);
  Rest rest = Rest::kIdentity;
  /// Whether units (attention and MLP separately) are selected, with drop rates computed from their sensitivities.
  bool drops_units = false;
  double lr_factor = 1;  // of the learning rate of --lr auto, relative to full's; measured in docs/quality.md
};

// Each rule is in its own file, schedule_<name>.cpp; schedule.cpp has the table.
extern const ScheduleRule kFull;    // every layer
extern const ScheduleRule kLcsb;    // LCSB, arXiv 2602.13073
extern const ScheduleRule kSuffix;  // the top layers; their number changes from step to step
extern const ScheduleRule kLisa;    // a few layers per period: LISA
extern const ScheduleRule kFreeze;  // freezes layers from the bottom
extern const ScheduleRule kDropBP;  // attention and MLP units, by their sensitivities: DropBP, arXiv 2402.17812

/// The rules by name, the values of the option `schedule`.
const std::vector<const ScheduleRule*>& schedule_rules();

/// A schedule: a rule with its options.
struct Schedule {
  const ScheduleRule* rule = &kFull;
  double ratio = 0.5;                        // fraction of layers that are trained
  Selection selection = Selection::kRandom;  // lcsb only
  std::vector<int64_t> suffix_depths;        // suffix only, cycled; empty: ratio x {1/2, 1, 3/2, 1}
  int64_t period = 20;                       // lisa only; in steps
  int64_t steps = 100;                       // steps of the run
  uint64_t seed = 0;
  std::vector<double> drop_rates;  // dropbp only: rate of each unit after the measurement; 1 - ratio before

  /// Returns a flag per layer. Throws Error if an option is out of range.
  std::vector<bool> select(int64_t step, int64_t layers) const;
  int64_t most_selected(int64_t layers) const;
  /// Returns the layers whose backward runs at a step, given the selected layers.
  std::vector<bool> with_backward(const std::vector<bool>& selected) const;
  int64_t most_with_backward(int64_t layers) const;
  /// The step before which sensitivities are measured, or -1 if the rule does not need them.
  int64_t measuring_step() const;
};

/// Returns round(ratio x layers), at least one and at most all.
int64_t share_of(double ratio, int64_t layers);
/// DropBP's allocation of drop rates 0, 0.1, ..., 0.9, so that units with at least the fraction `target` of all
/// operations are dropped on average. Repeatedly raises the rate for which sensitivity x rate is then the lowest.
std::vector<double> allocate_drop_rates(const std::vector<double>& sensitivities, const std::vector<double>& flops,
                                        double target);
/// Returns this many random layers: the `number`th selection of the schedule's seed.
std::vector<bool> drawn_layers(const Schedule& schedule, int64_t number, int64_t layers);

}  // namespace mft
