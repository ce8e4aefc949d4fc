#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace mft {

/// Space on disk for what memory has no room for. The file has no name, so nothing is left behind however the process
/// ends; the disk space is claimed at once, so a full disk is an error before training and not within it.
class OffloadFile {
 public:
  OffloadFile() = default;
  /// Throws Error naming the folder where `bytes` cannot be had there.
  OffloadFile(const std::string& folder, uint64_t bytes);
  ~OffloadFile();
  OffloadFile(const OffloadFile&) = delete;
  OffloadFile& operator=(OffloadFile&& other) noexcept;

  void write(uint64_t offset, const void* data, size_t bytes);
  void read(uint64_t offset, void* data, size_t bytes) const;

 private:
  std::string folder_;
  int fd_ = -1;
};

}  // namespace mft
