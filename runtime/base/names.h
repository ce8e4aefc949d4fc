#pragma once

#include <cstddef>
#include <string>

#include "runtime/base/error.h"

namespace mft {

// `names(E{})`, defined next to each enum, returns the names of its values in order. Options, checkpoints and reports
// use this table.

template <typename E>
const char* name_of(E value) {
  return names(value).at(static_cast<size_t>(value));
}

/// Returns the value with the name `text`. Throws Error with all names if there is none.
template <typename E>
E value_of(const std::string& text) {
  const auto all = names(E{});
  std::string list;
  for (size_t i = 0; i < all.size(); ++i) {
    if (text == all[i]) return static_cast<E>(i);
    list += (i ? ", " : "") + std::string(all[i]);
  }
  fail("must be one of ", list);
}

}  // namespace mft
