#include "runtime/train/offload_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/platform/disk.h"

namespace mft {

OffloadFile::OffloadFile(const std::string& folder, uint64_t bytes) : folder_(folder) {
  const std::string path = folder + "/offload-XXXXXX";
  std::vector<char> name;
  fd_ = uninterrupted([&] {
    name.assign(path.c_str(), path.c_str() + path.size() + 1);
    return mkostemp(name.data(), O_CLOEXEC);
  });
  if (fd_ < 0) fail(folder, ": cannot create an offload file in this folder (", std::strerror(errno), ")");
  unlink(name.data());
  int error = EINTR;
  while (error == EINTR) error = reserve_on_disk(fd_, bytes);
  if (error != 0) {
    close(fd_);
    fail(folder, ": cannot reserve ", bytes / 1000000, " MB for offloaded checkpoints (", std::strerror(error), ")");
  }
}

OffloadFile::~OffloadFile() {
  if (fd_ >= 0) close(fd_);
}

OffloadFile& OffloadFile::operator=(OffloadFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(folder_, other.folder_);
  return *this;
}

void OffloadFile::write(uint64_t offset, const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = uninterrupted([&] { return pwrite(fd_, from, bytes, static_cast<off_t>(offset)); });
    if (n <= 0) fail(folder_, ": cannot write the offload file (", std::strerror(errno), ")");
    from += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<size_t>(n);
  }
}

void OffloadFile::read(uint64_t offset, void* data, size_t bytes) const {
  char* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = uninterrupted([&] { return pread(fd_, to, bytes, static_cast<off_t>(offset)); });
    if (n <= 0) fail(folder_, ": cannot read the offload file (", n == 0 ? "it ends early" : std::strerror(errno), ")");
    to += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<size_t>(n);
  }
}

}  // namespace mft
