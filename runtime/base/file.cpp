#include "runtime/base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/sha256.h"
#include "runtime/platform/disk.h"
#include "runtime/platform/pages.h"

namespace mft {
namespace {

/// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags)
      : fd_(uninterrupted([&] { return open(path.c_str(), flags | O_CLOEXEC, 0644); })) {
    if (fd_ < 0) fail(path, ": ", std::strerror(errno));
  }
  ~Descriptor() { close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

void write_all(int fd, const std::string& path, const FilePart& part) {
  const char* data = static_cast<const char*>(part.data);
  size_t left = part.size;
  while (left > 0) {
    const ssize_t n = uninterrupted([&] { return write(fd, data, left); });
    if (n < 0) fail(path, ": cannot save the file (", std::strerror(errno), "); the old file is unchanged");
    data += n;
    left -= static_cast<size_t>(n);
  }
}

/// Reads the first `size` bytes in small pieces, so that none of them stays in memory.
template <typename F>
void read_pieces(const OpenFile& file, uint64_t size, const F& take) {
  if (file.size() < size) fail(file.path(), ": must have at least ", size, " bytes");
  std::array<char, 1 << 16> chunk;
  for (uint64_t done = 0; done < size;) {
    const ssize_t n =
        pread(file.descriptor(), chunk.data(), std::min<uint64_t>(chunk.size(), size - done), static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(file.path(), ": ", n == 0 ? "the file became shorter" : std::strerror(errno));
    take(chunk.data(), static_cast<size_t>(n));
    done += static_cast<uint64_t>(n);
  }
}

}  // namespace

OpenFile::OpenFile(const std::string& path)
    : path_(path),
      fd_(open(path.c_str(),
               O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {  // O_NONBLOCK: opening a pipe without a writer would block
  if (fd_ < 0) fail(path, ": ", std::strerror(errno));
  struct stat status;
  if (fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(fd_);
    fail(path, ": not a regular file");
  }
  size_ = static_cast<uint64_t>(status.st_size);
}

OpenFile::~OpenFile() { close(fd_); }

std::string OpenFile::beginning(uint64_t size) const {
  std::string text;
  read_pieces(*this, size, [&](const char* data, size_t bytes) { text.append(data, bytes); });
  return text;
}

MappedRange::MappedRange(const OpenFile& file, uint64_t offset, uint64_t size) {
  if (file.size() == 0) fail(file.path(), ": the file is empty");
  if (size == 0 || offset > file.size() || size > file.size() - offset) {
    fail(file.path(), ": ", size, " bytes at ", offset, " are beyond the end of the file (", file.size(), " bytes)");
  }
  const uint64_t before = offset % page_bytes();  // mappings start at a page
  void* mapped =
      mmap(nullptr, before + size, PROT_READ, MAP_PRIVATE, file.descriptor(), static_cast<off_t>(offset - before));
  if (mapped == MAP_FAILED) fail(file.path(), ": ", std::strerror(errno));
  data_ = static_cast<const std::byte*>(mapped) + before;
  size_ = size;
}

MappedRange::~MappedRange() {
  if (data_ == nullptr) return;
  const uintptr_t before = reinterpret_cast<uintptr_t>(data_) % page_bytes();
  munmap(const_cast<std::byte*>(data_) - before, before + size_);
}

MappedRange::MappedRange(MappedRange&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedRange& MappedRange::operator=(MappedRange&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedRange::advise(int advice) const {
  const uintptr_t before = reinterpret_cast<uintptr_t>(data_) % page_bytes();
  madvise(const_cast<std::byte*>(data_) - before, before + size_, advice);
}

LockedFolder::LockedFolder(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_ < 0) fail(path, ": ", std::strerror(errno));
  if (flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;  // some file systems do not support locks
  close(fd_);
  fail(path, ": another run is writing to this folder");
}

LockedFolder::~LockedFolder() { close(fd_); }

void write_atomically(const std::string& path, const std::vector<FilePart>& parts) {
  const std::string beside = path + ".partial";
  try {
    {
      Descriptor fd(beside, O_WRONLY | O_CREAT | O_TRUNC);
      for (const FilePart& part : parts) write_all(fd.get(), path, part);
      if (uninterrupted([&] { return sync_to_disk(fd.get()); }) != 0)
        fail(path, ": cannot save the file (", std::strerror(errno), ")");
    }
    if (rename(beside.c_str(), path.c_str()) != 0) {
      fail(path, ": cannot save the file (", std::strerror(errno), ")");
    }
  } catch (...) {
    unlink(beside.c_str());
    throw;
  }
  sync_folder_of(path);
}

uint64_t file_size(const std::string& path) { return OpenFile(path).size(); }

std::string sha256_of_file(const std::string& path, uint64_t size) {
  const OpenFile file(path);
  Sha256 sha;
  read_pieces(file, size, [&](const char* data, size_t bytes) { sha.update(data, bytes); });
  return sha.hex();
}

std::string read_text(const std::string& path, size_t most) {
  const MappedFile file(path);
  if (file.size() > most) fail(path, ": has ", file.size(), " bytes; at most ", most, " are supported");
  return std::string(reinterpret_cast<const char*>(file.data()), file.size());
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names = {path};  // includes `path` if it exists, because its creator may not have synced it
  for (auto above = std::filesystem::path(path).parent_path(); !above.empty() && !file_exists(above.string());) {
    names.push_back(above.string());
    above = above.parent_path();
  }
  std::filesystem::create_directories(path, error);
  if (error) fail(path, ": cannot create the folder (", error.message(), ")");
  for (const std::string& name : names) sync_folder_of(name);
}

void sync_folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  const int fd = uninterrupted([&] { return open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC); });
  if (fd < 0) return;  // the folder is not readable
  const bool synced = uninterrupted([&] { return sync_to_disk(fd); }) == 0 || errno == EINVAL || errno == EROFS;
  const int reason = errno;
  close(fd);
  if (!synced) fail(path, ": cannot sync to disk (", std::strerror(reason), ")");
}

bool file_exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

}  // namespace mft
