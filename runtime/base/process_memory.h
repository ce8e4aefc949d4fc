#pragma once

#include <cstdint>

namespace mft {

/// What the kernel says of this process's memory, in bytes (/proc/self/status).
struct ProcessMemory {
  uint64_t rss = 0;       // VmRSS: resident, mapped files included
  uint64_t anon = 0;      // RssAnon: resident anonymous
  uint64_t peak_rss = 0;  // VmHWM: highest RSS since the start or the last reset
};

ProcessMemory process_memory();

/// Bytes of a page of memory, as the system says: 4 or 16 KB.
uint64_t page_bytes();
/// Rounded up to whole pages.
uint64_t round_to_pages(uint64_t bytes);

/// Lowers VmHWM to the present RSS (/proc/self/clear_refs), so that a peak counts from here. False where the kernel
/// does not allow it.
bool reset_peak_rss();

}  // namespace mft
