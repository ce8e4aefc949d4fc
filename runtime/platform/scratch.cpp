#include "runtime/platform/scratch.h"

#include <executorch/runtime/platform/assert.h>

namespace mft {

std::byte* Scratch::take_bytes(size_t bytes) {
  const size_t skip = -reinterpret_cast<uintptr_t>(data) % kScratchAlign;
  ET_CHECK_MSG(skip + bytes <= size, "scratch too small: %zu of %zu bytes", skip + bytes, size);
  std::byte* out = data + skip;
  data = out + bytes;
  size -= skip + bytes;
  return out;
}

}  // namespace mft
