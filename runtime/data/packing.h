#pragma once

#include <cstdint>
#include <vector>

namespace mft {

/// Packs items into sequences: shuffles them with `seed`, and puts each, unsplit, into the first of the last few
/// sequences that has room. `lengths` are in positions, from 1 to `seq_len`. Returns the items of each sequence; every
/// item is in exactly one.
std::vector<std::vector<int64_t>> pack(const std::vector<int64_t>& lengths, int64_t seq_len, uint64_t seed);

}  // namespace mft
