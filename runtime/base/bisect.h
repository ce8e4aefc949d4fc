#pragma once

#include <cstdint>

namespace mft {

/// Returns the last n in [low, high] for which `holds` is true. It must be true at `low`, and false after some n.
template <typename F>
int64_t last_that(int64_t low, int64_t high, const F& holds) {
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (holds(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace mft
