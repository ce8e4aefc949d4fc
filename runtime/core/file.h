#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mft {

/// A file mapped read-only. Throws Error naming the file where it cannot be opened.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  /// Lets the pages leave the process; they come back from the file when they are read again.
  void drop() const;
  size_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

struct FilePart {
  const void* data;
  size_t size;
};

/// Writes the parts one after another: beside the target, fsync, rename. A reader sees the old file or the whole new
/// one; where the disk is full the old one stays and nothing is left behind.
void write_atomically(const std::string& path, const std::vector<FilePart>& parts);

/// Bytes of a regular file. Throws Error naming it where it is anything else; a pipe or device is not opened for long
/// enough to hang.
uint64_t file_size(const std::string& path);

/// SHA-256 in hexadecimal of the first `size` bytes of a file, read in small pieces so that none of it stays in memory.
std::string sha256_of_file(const std::string& path, uint64_t size);

std::string read_text(const std::string& path);
void make_folder(const std::string& path);
bool file_exists(const std::string& path);

}  // namespace mft
