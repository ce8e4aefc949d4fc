#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mft {

/// How lcsb chooses its layers.
enum class Selection { kRandom, kContiguous, kStrided };
inline std::vector<const char*> names(Selection) { return {"random", "contiguous", "strided"}; }

struct Schedule;

/// What becomes of layers that a step did not select, but for those below the lowest that it did, where nothing runs.
enum class Rest {
  kIdentity,       // they pass the gradient on unchanged, and AdamW's momentum may move them on
  kFrozen,         // the same, and they stay as they are
  kPassedThrough,  // their backward runs for the gradient that it passes on, and they stay as they are
};

/// One way to decide which layers, or units, are trained at a step, of `layers` or units in all; `step` counts from 0.
/// What it selects is a function of (schedule, step) alone, so a resumed run selects the same.
struct ScheduleRule {
  const char* name;
  std::vector<bool> (*select)(const Schedule& schedule, int64_t step, int64_t layers);
  /// The most layers that any step selects: what memory has to be planned for.
  int64_t (*most_selected)(const Schedule& schedule, int64_t layers);
  Rest rest = Rest::kIdentity;
  /// What is selected are units, attention and MLP by themselves, at drop rates that follow from their sensitivities.
  bool drops_units = false;
};

// Each in a file of its own, schedule_<name>.cpp; schedule.cpp has the table.
extern const ScheduleRule kFull;    // every layer
extern const ScheduleRule kLcsb;    // LCSB, arXiv 2602.13073
extern const ScheduleRule kSuffix;  // the top layers, to depths that change from step to step
extern const ScheduleRule kLisa;    // a few layers a period, LISA
extern const ScheduleRule kFreeze;  // fewer and fewer of the lower layers
extern const ScheduleRule kDropBP;  // attention and MLP units, by their sensitivities: DropBP, arXiv 2402.17812

/// The rules by name: what `--schedule` takes.
const std::vector<const ScheduleRule*>& schedule_rules();

/// Which layers are trained at a step: a rule and its options.
struct Schedule {
  const ScheduleRule* rule = &kFull;
  double ratio = 0.5;                        // share of the layers that are trained
  Selection selection = Selection::kRandom;  // of lcsb
  std::vector<int64_t> suffix_depths;        // cycle of suffix; empty: ratio x {1/2, 1, 3/2, 1}
  int64_t period = 20;                       // of lisa, steps
  int64_t steps = 100;                       // of the run
  uint64_t seed = 0;
  std::vector<double> drop_rates;  // of dropbp: of each unit, once its sensitivity is measured; 1 - ratio until then

  /// One flag a layer. Throws Error where an option is out of range.
  std::vector<bool> select(int64_t step, int64_t layers) const;
  int64_t most_selected(int64_t layers) const;
  /// Of a step's layers those whose backward runs, given the selected ones.
  std::vector<bool> with_backward(const std::vector<bool>& selected) const;
  int64_t most_with_backward(int64_t layers) const;
  /// The step before which sensitivities are measured, -1 where the rule needs none.
  int64_t measuring_step() const;
};

/// round(ratio x layers), at least one and at most all.
int64_t share_of(double ratio, int64_t layers);
/// DropBP's allocation: drop rates 0, 0.1, ..., 0.9 such that units with at least the share `target` of the operations
/// are dropped on average. One rate after another is raised, that whose sensitivity x rate is least then.
std::vector<double> allocate_drop_rates(const std::vector<double>& sensitivities, const std::vector<double>& flops,
                                        double target);
/// So many layers, the `number`th that the schedule's seed draws.
std::vector<bool> drawn_layers(const Schedule& schedule, int64_t number, int64_t layers);

}  // namespace mft
