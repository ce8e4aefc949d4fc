#pragma once

#include <cstdint>

#include "runtime/kernels/recurrent/delta_net.h"
#include "runtime/platform/threads.h"

namespace mft::MFT_ISA {

// Calls body(begin, end, key head, worker) for every row of the packed sequence and every key head, in several threads.
// A row starts where a position is 0, and at token 0.
template <typename Body>
void each_delta_row(const DeltaNetShape& s, const DeltaNetInput& in, const Body& body) {
  for (int64_t begin = 0; begin < s.t;) {
    // Rows in turn: heads are enough items for the threads.
    int64_t end = begin + 1;
    while (end < s.t && in.positions[end] > 0) ++end;
    parallel_for_worker(s.key_heads, [&](int64_t key_head, int64_t worker) { body(begin, end, key_head, worker); });
    begin = end;
  }
}

size_t delta_net_backward_scratch_bytes(const DeltaNetShape& s);

}  // namespace mft::MFT_ISA
