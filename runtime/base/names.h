#pragma once

#include <cstddef>
#include <string>

#include "runtime/base/error.h"

namespace mft {

// The names of an enum's values stand beside it, in its order, as what `names(E{})` gives: the one table that options,
// checkpoints and reports read.

template <typename E>
const char* name_of(E value) {
  return names(value).at(static_cast<size_t>(value));
}

/// Throws Error that lists the names where `text` is none of them.
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
