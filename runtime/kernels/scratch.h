#pragma once

// Working memory of a kernel: the runtime allocates it once, kernels carve it up and never malloc.

#include <executorch/runtime/platform/assert.h>

#include <cstddef>
#include <cstdint>

namespace mft {

constexpr size_t kScratchAlign = 64;

struct Scratch {
  std::byte* data;
  size_t size;

  // The next `floats` floats, 64-byte aligned.
  float* take(size_t floats) {
    const size_t skip = -reinterpret_cast<uintptr_t>(data) % kScratchAlign;
    const size_t bytes = skip + floats * sizeof(float);
    ET_CHECK_MSG(bytes <= size, "scratch too small: %zu of %zu bytes", bytes, size);
    float* out = reinterpret_cast<float*>(data + skip);
    data += bytes;
    size -= bytes;
    return out;
  }
};

// Adds up what a sequence of take() calls needs; the start of the scratch may be unaligned.
struct ScratchSize {
  size_t bytes = kScratchAlign;

  void take(size_t floats) { bytes += (floats * sizeof(float) + kScratchAlign - 1) / kScratchAlign * kScratchAlign; }
};

}  // namespace mft
