#pragma once

#include <cstdint>

namespace mft {

/// The kernel's figures of this process's memory, in bytes.
///
/// Linux: /proc/self/status. Darwin: the footprint (task_info), which its limits count: anonymous memory, also where it
/// is compressed, without clean pages of files.
struct ProcessMemory {
  uint64_t rss = 0;       // Linux: VmRSS, mapped files included
  uint64_t anon = 0;      // Linux: RssAnon
  uint64_t peak_rss = 0;  // Linux: VmHWM, since the start or the last reset; Darwin: since the start
};

ProcessMemory process_memory();

/// Resets the peak to the current RSS, so that it is measured from now on. Returns false if the kernel does not allow
/// it (Darwin never does).
bool reset_peak_rss();

}  // namespace mft
