#pragma once

#include <cstdint>

#include "runtime/bundle/bundle.h"
#include "runtime/schedule/schedule.h"

namespace mft {

/// The items that a schedule selects: a model's layers, or its units.
struct Selectable {
  const Bundle& bundle;
  bool units;

  Selectable(const Bundle& b, const Schedule& schedule) : bundle(b), units(schedule.rule->drops_units) {}
  int64_t count() const { return units ? static_cast<int64_t>(bundle.units.size()) : bundle.num_layers; }
  /// Returns the item to which a unit belongs.
  size_t of(size_t unit) const { return units ? unit : static_cast<size_t>(bundle.units[unit].layer); }
};

}  // namespace mft
