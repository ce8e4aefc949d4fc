#include "runtime/core/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "runtime/core/error.h"
#include "runtime/core/sha256.h"

namespace mft {
namespace {

/// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {
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
    const ssize_t n = write(fd, data, left);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path, ": could not be saved (", std::strerror(errno), "); what was there before is untouched");
    data += n;
    left -= static_cast<size_t>(n);
  }
}

/// Bytes of an open file. Throws Error where it is no regular one.
uint64_t regular_size(int fd, const std::string& path) {
  struct stat status;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) fail(path, ": not a regular file");
  return static_cast<uint64_t>(status.st_size);
}

constexpr int kRead = O_RDONLY | O_NONBLOCK;  // to open a pipe without a writer would hang

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  Descriptor fd(path, kRead);
  size_ = static_cast<size_t>(regular_size(fd.get(), path));
  if (size_ == 0) fail(path, ": the file is empty");
  void* mapped = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (mapped == MAP_FAILED) fail(path, ": ", std::strerror(errno));
  data_ = static_cast<const std::byte*>(mapped);
}

void MappedFile::drop() const { madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED); }

MappedFile::~MappedFile() { munmap(const_cast<std::byte*>(data_), size_); }

void write_atomically(const std::string& path, const std::vector<FilePart>& parts) {
  const std::string beside = path + ".partial";
  try {
    {
      Descriptor fd(beside, O_WRONLY | O_CREAT | O_TRUNC);
      for (const FilePart& part : parts) write_all(fd.get(), path, part);
      if (fsync(fd.get()) != 0) fail(path, ": could not be saved (", std::strerror(errno), ")");
    }
    if (rename(beside.c_str(), path.c_str()) != 0) {
      fail(path, ": could not be saved (", std::strerror(errno), ")");
    }
  } catch (...) {
    unlink(beside.c_str());
    throw;
  }
  const auto folder = std::filesystem::path(path).parent_path();
  Descriptor parent(folder.empty() ? "." : folder.string(), O_RDONLY);
  fsync(parent.get());
}

uint64_t file_size(const std::string& path) { return regular_size(Descriptor(path, kRead).get(), path); }

std::string sha256_of_file(const std::string& path, uint64_t size) {
  Descriptor fd(path, kRead);
  if (regular_size(fd.get(), path) < size) fail(path, ": shorter than ", size, " bytes");
  std::array<uint8_t, 1 << 16> chunk;
  Sha256 sha;
  while (size > 0) {
    const ssize_t n = read(fd.get(), chunk.data(), std::min<uint64_t>(chunk.size(), size));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(path, ": ", n == 0 ? "became shorter" : std::strerror(errno));
    sha.update(chunk.data(), static_cast<size_t>(n));
    size -= static_cast<uint64_t>(n);
  }
  return sha.hex();
}

std::string read_text(const std::string& path) {
  MappedFile file(path);
  return std::string(reinterpret_cast<const char*>(file.data()), file.size());
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) fail(path, ": cannot be created (", error.message(), ")");
}

bool file_exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

}  // namespace mft
