#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mft {

/// A regular file, open for reading. All reads and mappings use the same file, even if its name is reused.
class OpenFile {
 public:
  /// Throws Error, with the file's name, if it cannot be opened or is not a regular file. Pipes and devices do not
  /// block.
  explicit OpenFile(const std::string& path);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  /// Returns a copy of the first `size` bytes. Throws Error if there are fewer.
  std::string beginning(uint64_t size) const;
  int descriptor() const { return fd_; }
  uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int fd_;
  uint64_t size_ = 0;
};

/// Bytes of a file, mapped read-only during the object's lifetime. If the file becomes shorter, touching the missing
/// bytes kills the process.
class MappedRange {
 public:
  /// Throws Error, with the file's name, if the range is empty or extends beyond the end.
  MappedRange(const OpenFile& file, uint64_t offset, uint64_t size);
  ~MappedRange();
  MappedRange(MappedRange&& other) noexcept;
  MappedRange& operator=(MappedRange&& other) noexcept;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  /// Drops the pages from the process. They are read from the file again when they are used.
  void drop() const { advise(MADV_DONTNEED); }
  /// madvise(2) on the pages.
  void advise(int advice) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// A whole file, mapped read-only. Throws Error, with its name, if it cannot be opened or is empty.
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

/// A folder that is locked for writing during the object's lifetime. Throws Error if another process has locked it.
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

/// Writes the parts to a file beside the target, syncs it and renames it. Readers see the old or the complete new file,
/// also after a power failure. If the disk is full, the old file stays and the temporary file is removed.
void write_atomically(const std::string& path, const std::vector<FilePart>& parts);

/// The size of a regular file in bytes. Throws Error, with its name, if it is not a regular file.
uint64_t file_size(const std::string& path);

/// SHA-256 (hexadecimal) of the first `size` bytes of a file. Reads small pieces, so that nothing stays in memory.
std::string sha256_of_file(const std::string& path, uint64_t size);

/// Returns the whole file. Throws Error if it has more than `most` bytes.
std::string read_text(const std::string& path, size_t most);
/// Creates a folder and its parents, and syncs them to disk.
void make_folder(const std::string& path);

/// Syncs a path's folder, which stores a new name on disk. Throws Error, with the path.
void sync_folder_of(const std::string& path);

/// Repeats a call that a signal interrupted.
template <typename Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

bool file_exists(const std::string& path);

}  // namespace mft
