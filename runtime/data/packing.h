#pragma once

#include <cstdint>
#include <vector>

namespace mft {

/// Which items share a sequence: shuffled by `seed`, then packed whole, each into the first sequence with room for it
/// of the last few. `lengths` has places, 1 to `seq_len` each. Every index is in one sequence, once.
std::vector<std::vector<int64_t>> pack(const std::vector<int64_t>& lengths, int64_t seq_len, uint64_t seed);

}  // namespace mft
