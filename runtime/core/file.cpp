#include "runtime/core/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "runtime/core/error.h"

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

/// Slicing-by-8 tables for the reflected polynomial 0xEDB88320.
struct CrcTables {
  std::array<std::array<uint32_t, 256>, 8> t;
  CrcTables() {
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ (c & 1 ? 0xEDB88320u : 0u);
      t[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; ++i) {
      for (int k = 1; k < 8; ++k) t[k][i] = (t[k - 1][i] >> 8) ^ t[0][t[k - 1][i] & 255];
    }
  }
};

uint32_t crc32_update(uint32_t crc, const uint8_t* data, size_t size) {
  static const CrcTables tables;
  const auto& t = tables.t;
  for (; size >= 8; size -= 8, data += 8) {
    uint32_t low, high;
    std::memcpy(&low, data, 4);
    std::memcpy(&high, data + 4, 4);
    low ^= crc;
    crc = t[7][low & 255] ^ t[6][(low >> 8) & 255] ^ t[5][(low >> 16) & 255] ^ t[4][low >> 24] ^ t[3][high & 255] ^
          t[2][(high >> 8) & 255] ^ t[1][(high >> 16) & 255] ^ t[0][high >> 24];
  }
  for (; size > 0; --size, ++data) crc = (crc >> 8) ^ t[0][(crc ^ *data) & 255];
  return crc;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  Descriptor fd(path, O_RDONLY);
  struct stat status;
  if (fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) fail(path, ": not a regular file");
  size_ = static_cast<size_t>(status.st_size);
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

Checksum checksum_file(const std::string& path) {
  Descriptor fd(path, O_RDONLY);
  std::array<uint8_t, 1 << 16> chunk;
  Checksum result{0, 0xFFFFFFFFu};
  while (true) {
    const ssize_t n = read(fd.get(), chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path, ": ", std::strerror(errno));
    if (n == 0) break;
    result.crc32 = crc32_update(result.crc32, chunk.data(), static_cast<size_t>(n));
    result.size += static_cast<uint64_t>(n);
  }
  result.crc32 = ~result.crc32;
  return result;
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
