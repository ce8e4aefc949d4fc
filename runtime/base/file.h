#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mft {

/// A regular file, open for reading: what is mapped and read is one file, even where its name is given to another.
class OpenFile {
 public:
  /// Throws Error naming the file where it cannot be opened or is anything else; a pipe or device is not opened for
  /// long enough to hang.
  explicit OpenFile(const std::string& path);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  /// The first `size` bytes, a copy. Throws Error where there are fewer.
  std::string beginning(uint64_t size) const;
  int descriptor() const { return fd_; }
  uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int fd_;
  uint64_t size_ = 0;
};

/// Bytes of a file mapped read-only while this lives. They go with it, as memory does that a file becoming shorter
/// takes away: touching those kills the process.
class MappedRange {
 public:
  /// Throws Error naming the file where the range is empty or reaches past its end.
  MappedRange(const OpenFile& file, uint64_t offset, uint64_t size);
  ~MappedRange();
  MappedRange(MappedRange&& other) noexcept;
  MappedRange& operator=(MappedRange&& other) noexcept;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  /// Lets the pages leave the process; they come back from the file when they are read again.
  void drop() const { advise(MADV_DONTNEED); }
  /// madvise(2) on the pages.
  void advise(int advice) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// A whole file mapped read-only. Throws Error naming it where it cannot be opened or is empty.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) : file_(path), range_(file_, 0, file_.size()) {}

  const std::byte* data() const { return range_.data(); }
  size_t size() const { return range_.size(); }
  void drop() const { range_.drop(); }
  const std::string& path() const { return file_.path(); }

 private:
  OpenFile file_;
  MappedRange range_;
};

/// A folder that this process alone writes to while this lives. Throws Error where another one does.
class LockedFolder {
 public:
  explicit LockedFolder(const std::string& path);
  ~LockedFolder();
  LockedFolder(const LockedFolder&) = delete;
  LockedFolder& operator=(const LockedFolder&) = delete;

 private:
  int fd_;
};

struct FilePart {
  const void* data;
  size_t size;
};

/// Writes the parts one after another: beside the target, fsync, rename. A reader sees the old file or the whole new
/// one, and so it is after a power cut; where the disk is full the old one stays and nothing is left behind.
void write_atomically(const std::string& path, const std::vector<FilePart>& parts);

/// Bytes of a regular file. Throws Error naming it where it is anything else.
uint64_t file_size(const std::string& path);

/// SHA-256 in hexadecimal of the first `size` bytes of a file, read in small pieces so that none of it stays in memory.
std::string sha256_of_file(const std::string& path, uint64_t size);

/// The whole file. Throws Error where it has more than `most` bytes.
std::string read_text(const std::string& path, size_t most);
/// With those above it; on disk when this returns.
void make_folder(const std::string& path);

/// A new name in a folder is on disk only once the folder is. Throws Error naming the path.
void sync_folder_of(const std::string& path);

/// Calls again what a signal interrupted.
template <typename Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

bool file_exists(const std::string& path);

}  // namespace mft
