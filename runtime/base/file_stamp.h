#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "runtime/platform/disk.h"

namespace mft {

/// Tells whether a file is the same as before, without reading it. A file that was replaced or written to has another
/// stamp; so has one that is missing.
struct FileStamp {
  uint64_t device = 0, inode = 0, size = 0;
  int64_t seconds = 0, nanoseconds = 0;  // of the last change

  FileStamp() = default;
  explicit FileStamp(const std::string& path) {
    struct stat found{};
    if (stat(path.c_str(), &found) != 0) return;
    device = static_cast<uint64_t>(found.st_dev);
    inode = static_cast<uint64_t>(found.st_ino);
    size = static_cast<uint64_t>(found.st_size);
    seconds = change_time(found).tv_sec;
    nanoseconds = change_time(found).tv_nsec;
  }
  bool operator==(const FileStamp& other) const {
    return device == other.device && inode == other.inode && size == other.size && seconds == other.seconds &&
           nanoseconds == other.nanoseconds;
  }
};

}  // namespace mft
