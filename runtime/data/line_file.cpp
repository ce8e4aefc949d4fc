#include "runtime/data/line_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/core/error.h"
#include "runtime/core/file.h"

namespace mft {
namespace {

constexpr const char* kBlank = " \t\r\n\v\f";

/// Bytes of `text` up to the end of its last whole line.
size_t whole(std::string_view text) {
  const size_t end = text.rfind('\n') + 1;  // npos + 1 is 0
  const std::string_view tail = text.substr(end);
  return tail.find_first_not_of(kBlank) == tail.npos || nlohmann::json::accept(tail) ? text.size() : end;
}

/// A file to add to, made where there is none, which no other adds to meanwhile.
class Appending {
 public:
  explicit Appending(const std::string& path)
      : path_(path), fd_(open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0644)) {
    if (fd_ < 0) fail(path, ": ", std::strerror(errno));
    while (flock(fd_, LOCK_EX) != 0) {
      if (errno == EINTR) continue;
      const int reason = errno;
      close(fd_);
      fail(path, ": ", std::strerror(reason));
    }
  }
  ~Appending() { close(fd_); }
  Appending(const Appending&) = delete;
  Appending& operator=(const Appending&) = delete;

  /// `text` behind the first `keep` bytes.
  void write_behind(uint64_t keep, std::string_view text) const {
    const bool fits = ftruncate(fd_, static_cast<off_t>(keep)) == 0;
    if (fits && write_all(text) && fsync(fd_) == 0) return;
    const int reason = errno;
    const bool undone = ftruncate(fd_, static_cast<off_t>(keep)) == 0;
    fail(path_, ": the row could not be saved (", std::strerror(reason), ")", undone ? "; those before it are" : "");
  }

 private:
  bool write_all(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t n = write(fd_, text.data(), text.size());
      if (n < 0 && errno != EINTR) return false;
      text.remove_prefix(static_cast<size_t>(std::max<ssize_t>(n, 0)));
    }
    return true;
  }

  const std::string& path_;
  int fd_;
};

/// A new name in a folder is on disk only once the folder is.
void sync_folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  const int fd = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;  // a folder that may not be read
  fsync(fd);
  close(fd);
}

}  // namespace

void for_each_whole_line(const std::string& path, const std::function<void(int64_t, std::string_view)>& take) {
  if (file_size(path) == 0) return;
  const MappedFile file(path);
  std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  text = text.substr(0, whole(text));
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (line.find_first_not_of(kBlank) != line.npos) take(number, line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void append_line(const std::string& path, const std::string& line) {
  const bool made = !file_exists(path);
  const Appending file(path);
  std::string before;  // the line end that a file from elsewhere may lack
  uint64_t keep = file_size(path);
  if (keep > 0) {
    const MappedFile mapped(path);
    const std::string_view text(reinterpret_cast<const char*>(mapped.data()), mapped.size());
    keep = whole(text);
    if (keep > 0 && text[keep - 1] != '\n') before = "\n";
  }
  file.write_behind(keep, before + line + "\n");
  if (made) sync_folder_of(path);
}

}  // namespace mft
