#pragma once

// Working memory of a kernel: the runtime allocates it once, kernels carve it up and never malloc.

#include <cstddef>
#include <cstdint>

namespace mft {

constexpr size_t kScratchAlign = 64;

struct Scratch {
  std::byte* data;
  size_t size;

  // The next `bytes` bytes, 64-byte aligned. Ends the process where there are fewer.
  std::byte* take_bytes(size_t bytes);
  // The next `floats` floats, likewise.
  float* take(size_t floats) { return reinterpret_cast<float*>(take_bytes(floats * sizeof(float))); }
};

// Adds up what a sequence of take() calls needs; the start of the scratch may be unaligned.
struct ScratchSize {
  size_t bytes = kScratchAlign;

  void take_bytes(size_t n) { bytes += (n + kScratchAlign - 1) / kScratchAlign * kScratchAlign; }
  void take(size_t floats) { take_bytes(floats * sizeof(float)); }
};

}  // namespace mft
