#pragma once

#include <map>
#include <string>

#include "runtime/python/calls.h"

namespace mft {

/// {PEFT tensor name: float32 array} of what `unit_values(unit)` holds of the unit's trained tensors, in the layout's
/// order; a null unit is left out.
template <typename UnitValues>
std::map<std::string, Array> tensors(const Model& model, LoraTrain train, const UnitValues& unit_values) {
  std::map<std::string, Array> result;
  for (size_t u = 0; u < model.layout().units.size(); ++u) {
    const float* from = unit_values(u);
    if (from == nullptr) continue;
    for (const AdapterTensor& t : model.layout().units[u]) {
      const size_t begin = model.layout().trained(u, train).begin;
      if (t.offset < begin) continue;
      const float* first = from + (t.offset - begin);
      std::vector<float> values(first, first + t.size());
      result.emplace(t.name, array(std::move(values), {static_cast<size_t>(t.rows), static_cast<size_t>(t.cols)}));
    }
  }
  return result;
}

}  // namespace mft
