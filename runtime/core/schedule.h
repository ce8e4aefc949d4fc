#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mft {

/// How lcsb chooses its layers.
enum class Selection { kRandom, kContiguous, kStrided };
inline std::vector<const char*> names(Selection) { return {"random", "contiguous", "strided"}; }

struct Schedule;

/// One way to decide which layers get backward at a step, of `layers` in all; `step` counts from 0. What it selects
/// is a function of (schedule, step) alone, so a resumed run selects the same.
struct ScheduleRule {
  const char* name;
  std::vector<bool> (*select)(const Schedule& schedule, int64_t step, int64_t layers);
  /// The most layers that any step selects: what memory has to be planned for.
  int64_t (*most_selected)(const Schedule& schedule, int64_t layers);
};

// Each in a file of its own, schedule_<name>.cpp; schedule.cpp has the table.
extern const ScheduleRule kFull;    // every layer
extern const ScheduleRule kLcsb;    // LCSB, arXiv 2602.13073
extern const ScheduleRule kSuffix;  // the top layers, to depths that change from step to step

/// The rules by name: what `--schedule` takes.
const std::vector<const ScheduleRule*>& schedule_rules();

/// Which layers get backward at a step: a rule and its options.
struct Schedule {
  const ScheduleRule* rule = &kFull;
  double ratio = 0.5;                        // share of the layers that get backward
  Selection selection = Selection::kRandom;  // of lcsb
  std::vector<int64_t> suffix_depths;        // cycle of suffix; empty: ratio x {1/2, 1, 3/2, 1}
  uint64_t seed = 0;

  /// One flag a layer. Throws Error where an option is out of range.
  std::vector<bool> select(int64_t step, int64_t layers) const;
  int64_t most_selected(int64_t layers) const;
};

/// round(ratio x layers), at least one and at most all.
int64_t share_of(double ratio, int64_t layers);

}  // namespace mft
