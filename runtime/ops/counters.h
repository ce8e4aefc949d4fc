#pragma once

#include <cstdint>
#include <vector>

namespace mft {

/// Time spent in one op since the program started.
struct OpCounter {
  const char* name;  // "mobile_ft::packed_linear.out"
  int64_t calls;
  double seconds;
};

/// All ops, in the order of their registration.
std::vector<OpCounter> op_counters();

}  // namespace mft
