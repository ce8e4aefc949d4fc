#pragma once

#include <cstdint>

namespace mft {

/// The kernel's figures of this process's memory, in bytes (/proc/self/status).
struct ProcessMemory {
  uint64_t rss = 0;       // VmRSS: resident, mapped files included
  uint64_t anon = 0;      // RssAnon: resident anonymous
  uint64_t peak_rss = 0;  // VmHWM: highest RSS since the start or the last reset
};

ProcessMemory process_memory();

/// Size of the system's pages in bytes: 4 or 16 KB.
uint64_t page_bytes();
/// Rounded up to whole pages.
uint64_t round_to_pages(uint64_t bytes);

/// Resets VmHWM to the current RSS (/proc/self/clear_refs), so that the peak is measured from now on. Returns false if
/// the kernel does not allow it.
bool reset_peak_rss();

}  // namespace mft
