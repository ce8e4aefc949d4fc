#include "runtime/platform/sweep.h"

#include <sys/mman.h>
#include <unistd.h>

namespace mft {
namespace {

const uint8_t* sweep_begin = nullptr;
const uint8_t* sweep_end = nullptr;

}  // namespace

void set_sweep(const uint8_t* begin, const uint8_t* end) {
  sweep_begin = begin;
  sweep_end = end;
}

void swept(const uint8_t* begin, const uint8_t* end) {
  if (begin < sweep_begin || end > sweep_end) return;
  static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t first = (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page;
  const uintptr_t last = reinterpret_cast<uintptr_t>(end) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace mft
