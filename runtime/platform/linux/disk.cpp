#include "runtime/platform/disk.h"

#include <fcntl.h>
#include <unistd.h>

namespace mft {

int sync_to_disk(int descriptor) { return fsync(descriptor); }

int reserve_on_disk(int descriptor, uint64_t bytes) {
  return posix_fallocate(descriptor, 0, static_cast<off_t>(bytes));
}

int open_uncached(const std::string& path, uint64_t bytes) {
  int direct = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  if (direct >= 0) return direct;
  // The file system is in memory, or its pages must be dropped from the page cache.
  direct = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (direct >= 0) posix_fadvise(direct, 0, static_cast<off_t>(bytes), POSIX_FADV_DONTNEED);
  return direct;
}

timespec change_time(const struct stat& status) { return status.st_ctim; }

}  // namespace mft
