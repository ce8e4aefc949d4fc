#pragma once

// Weights that a kernel reads once from front to back, the head's above all, need not stay resident behind it. Whoever
// maps them from a file says where they lie; the kernel says how far it has come.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace mft {

// The file mapping whose pages may be dropped; only the runtime's one training thread sets it, between kernels.
inline const uint8_t* sweep_begin = nullptr;
inline const uint8_t* sweep_end = nullptr;

// How much a kernel reads before it reports.
constexpr size_t kSweepBytes = size_t{1} << 20;

// The pages wholly inside [begin, end) leave the process if they belong to that mapping; read again, they come back.
inline void swept(const uint8_t* begin, const uint8_t* end) {
  if (begin < sweep_begin || end > sweep_end) return;
  static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page;
  const uintptr_t last = reinterpret_cast<uintptr_t>(end) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace mft
