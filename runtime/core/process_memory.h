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

/// Lowers VmHWM to the present RSS (/proc/self/clear_refs), so that a peak counts from here. False where the kernel
/// does not allow it.
bool reset_peak_rss();

}  // namespace mft
