#pragma once

#include <chrono>

namespace mft {

/// Seconds of the steady clock.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace mft
