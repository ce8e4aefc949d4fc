#include "runtime/platform/sweep.h"

#include <sys/mman.h>
#include <unistd.h>

namespace mft {

namespace {

uintptr_t page_size() {
  static const uintptr_t size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace

void drop_pages(const uint8_t* begin, const uint8_t* end) {
  const uintptr_t page = page_size();
  const uintptr_t first = (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page;
  const uintptr_t last = reinterpret_cast<uintptr_t>(end) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

void read_ahead(const uint8_t* begin, const uint8_t* end) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(begin) / page_size() * page_size();
  madvise(reinterpret_cast<void*>(first), reinterpret_cast<uintptr_t>(end) - first, MADV_WILLNEED);
}

}  // namespace mft
