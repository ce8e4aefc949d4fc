#include "runtime/platform/disk.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace mft {

// Some file systems have no full sync.
int sync_to_disk(int descriptor) {
  if (fcntl(descriptor, F_FULLFSYNC) == 0) return 0;
  return errno == EINTR ? -1 : fsync(descriptor);
}

int reserve_on_disk(int descriptor, uint64_t bytes) {
  fstore_t room{F_ALLOCATEALL, F_PEOFPOSMODE, 0, static_cast<off_t>(bytes), 0};
  if (fcntl(descriptor, F_PREALLOCATE, &room) != 0) return errno;
  return ftruncate(descriptor, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
}

// Pages that are in the cache would still be read from there.
int open_uncached(const std::string& path, uint64_t bytes) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return file;
  fcntl(file, F_NOCACHE, 1);
  void* const mapped = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED) {
    msync(mapped, bytes, MS_INVALIDATE);
    munmap(mapped, bytes);
  }
  return file;
}

timespec change_time(const struct stat& status) { return status.st_ctimespec; }

}  // namespace mft
