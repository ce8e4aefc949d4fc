#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mft {

/// Which layers get backward at a step. A function of (seed, step) alone, so a resumed run selects the same ones.
struct Schedule {
  enum class Kind { kFull, kLcsb, kSuffix };
  enum class Selection { kContiguous, kStrided, kRandom };

  Kind kind = Kind::kFull;
  Selection selection = Selection::kRandom;  // of lcsb
  double ratio = 0.5;                        // share of the layers that get backward
  std::vector<int64_t> suffix_depths;        // cycle of suffix; empty: ratio x {1/2, 1, 3/2, 1}
  uint64_t seed = 0;

  /// One flag a layer. `step` counts from 0. Throws Error where ratio or a depth is out of range.
  ///
  /// full:   every layer.
  /// lcsb:   round(ratio x layers) layers (LCSB, arXiv 2602.13073): contiguous blocks in turn, every k-th layer in
  ///         turn, or drawn anew at every step.
  /// suffix: the top d layers, d cycling from step to step.
  std::vector<bool> select(int64_t step, int64_t layers) const;

  /// The most layers that any step selects: what memory has to be planned for.
  int64_t most_selected(int64_t layers) const;

  const char* name() const;
};

}  // namespace mft
