#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/model/model.h"
#include "runtime/plan/selectable.h"
#include "runtime/plan/unit_times.h"

namespace mft {

/// Units that cost the same to store, to recompute and to offload, whatever they compute.
struct UnitGroup {
  std::string name;         // of the first kind of unit in it
  std::vector<bool> kinds;  // which of the bundle's kinds are in it
  int64_t units = 0;        // of those whose backward a step runs, at most
  uint64_t saved = 0;       // bytes that a stored unit leaves
  bool reads_x = false;     // whether it keeps its input besides
  double seconds = 0;       // to compute its forward once more
};

/// The bundle's units in groups, for steps that run the backward of up to `selected` of what can be selected.
std::vector<UnitGroup> unit_groups(const Model& model, const UnitTimes& times, int64_t tokens, int64_t mlp_tokens,
                                   const Selectable& selectable, int64_t selected);

/// The largest sum over `count` of the layers, or units, given each one's number.
template <typename T>
T most_of(std::vector<T> numbers, int64_t count) {
  std::sort(numbers.begin(), numbers.end(), std::greater<T>());
  T sum = 0;
  for (size_t i = 0; i < std::min(numbers.size(), static_cast<size_t>(count)); ++i) sum += numbers[i];
  return sum;
}

}  // namespace mft
