#pragma once

#include <string>

namespace mft {

/// Words of command lines and events that have another name now, for errors to say and old events to be read.
struct Renamed {
  const char* before;
  const char* now;
};
inline constexpr Renamed kRenamed[] = {{"rates", "throughput"}, {"spilled", "offloaded"}};

/// The name now of what was called `before`; empty if it has not been renamed.
inline std::string name_now(const std::string& before) {
  for (const Renamed& renamed : kRenamed) {
    if (before == renamed.before) return renamed.now;
  }
  return "";
}

}  // namespace mft
