#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/platform/threads.h"
#include "runtime/platform/vec.h"

namespace mft::MFT_ISA {

// Calls part(i, count) for the registers that cover [0, n), in several threads: `count` numbers from i on.
template <typename Part>
void each_part(int64_t n, const Part& part) {
  constexpr int64_t kStep = 16384;
  parallel_ranges(n, kStep, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kVec) part(i, std::min<int64_t>(kVec, end - i));
  });
}

}  // namespace mft::MFT_ISA
