#pragma once

// Pages of weights that a kernel reads or has read. A weight that it reads once from front to back, such as the head,
// need not stay resident behind the kernel (PackedWeight::read_once).

#include <cstddef>
#include <cstdint>

namespace mft {

// A kernel reads this much before it drops the pages behind it.
constexpr size_t kSweepBytes = size_t{1} << 20;

// Drops the pages of a file mapping that lie wholly inside [begin, end) from the process. Reading them again maps them
// again.
void drop_pages(const uint8_t* begin, const uint8_t* end);

// Starts to read the pages of a file mapping with [begin, end) from disk.
void read_ahead(const uint8_t* begin, const uint8_t* end);

}  // namespace mft
