#pragma once

#include <cstdint>

namespace mft {

/// Size of the system's pages in bytes: 4 or 16 KB.
uint64_t page_bytes();
/// Rounded up to whole pages.
uint64_t round_to_pages(uint64_t bytes);

}  // namespace mft
