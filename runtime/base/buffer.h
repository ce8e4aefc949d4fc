#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <utility>

#include "runtime/base/error.h"

namespace mft {

/// Zeroed anonymous memory, mapped directly: untouched pages use no memory, and freed pages return to the kernel at
/// once, so that the process uses the planned memory.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes) : size_(bytes) {
    if (bytes == 0) return;
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) {
      data_ = nullptr;
      fail("out of memory: cannot map ", bytes >> 20, " MB");
    }
  }
  ~Buffer() {
    if (data_ != nullptr) munmap(data_, size_);
  }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* bytes() const { return static_cast<std::byte*>(data_); }
  float* floats() const { return static_cast<float*>(data_); }
  size_t size() const { return size_; }

 private:
  void swap(Buffer& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace mft
