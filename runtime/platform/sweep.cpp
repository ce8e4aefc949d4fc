#include "runtime/platform/sweep.h"

#include <sys/mman.h>

#include "runtime/platform/pages.h"

namespace mft {

void drop_pages(const uint8_t* begin, const uint8_t* end) {
  const uintptr_t page = page_bytes();
  const uintptr_t first = (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page;
  const uintptr_t last = reinterpret_cast<uintptr_t>(end) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

void read_ahead(const uint8_t* begin, const uint8_t* end) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(begin) / page_bytes() * page_bytes();
  madvise(reinterpret_cast<void*>(first), reinterpret_cast<uintptr_t>(end) - first, MADV_WILLNEED);
}

}  // namespace mft
