#include "runtime/data/line_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <tuple>

#include "runtime/core/error.h"
#include "runtime/core/file.h"

namespace mft {
namespace {

constexpr const char* kBlank = " \t\r\n\v\f";

/// Whether this is JSON that ends too early, or what a file system puts where data never came.
bool breaks_off(std::string_view text) {
  if (text.find('\0') != text.npos) return true;
  try {
    const auto keep_none = [](int, nlohmann::json::parse_event_t, nlohmann::json&) { return false; };
    std::ignore = nlohmann::json::parse(text, keep_none);
    return false;
  } catch (const nlohmann::json::parse_error& error) {
    return error.byte > text.size();
  } catch (const nlohmann::json::exception&) {  // a number too large
    return false;
  }
}

/// Bytes of `text` up to the end of its last whole line.
size_t whole(std::string_view text) {
  const size_t end = text.rfind('\n') + 1;  // npos + 1 is 0
  const std::string_view tail = text.substr(end);
  return tail.find_first_not_of(kBlank) != tail.npos && breaks_off(tail) ? end : text.size();
}

void give_lines(std::string_view text, const TakeLine& take) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const size_t first = line.find_first_not_of(kBlank);
    if (first != line.npos) take(number, line.substr(first, line.find_last_not_of(kBlank) + 1 - first));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

std::string_view text_of(const MappedRange& file) { return {reinterpret_cast<const char*>(file.data()), file.size()}; }

void lock(int fd, const std::string& path, int kind) {
  while (flock(fd, kind) != 0) {
    if (errno != EINTR) fail(path, ": ", std::strerror(errno));
  }
}

/// A file to add to, made where there is none, which no other adds to meanwhile.
class Appending {
 public:
  explicit Appending(const std::string& path)
      : path_(path), fd_(open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0644)) {
    if (fd_ < 0) fail(path, ": ", std::strerror(errno));
    try {
      lock(fd_, path, LOCK_EX);
    } catch (...) {
      close(fd_);
      throw;
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

void for_each_line(const std::string& path, const TakeLine& take) {
  const OpenFile file(path);
  lock(file.descriptor(), path, LOCK_SH);  // nobody takes away a line cut short meanwhile: touching that would kill
  const OpenFile now(path);                // its size as it is under the lock
  if (now.size() == 0) return;
  const MappedRange mapped(now, 0, now.size());
  give_lines(text_of(mapped).substr(0, whole(text_of(mapped))), take);
}

void append_line(const std::string& path, const std::string& line, const TakeLine& take) {
  const bool made = !file_exists(path);
  const Appending file(path);
  std::string before;  // the line end that a file from elsewhere may lack
  uint64_t keep = file_size(path);
  if (keep > 0) {
    const OpenFile open(path);
    const MappedRange mapped(open, 0, keep);
    const std::string_view text = text_of(mapped).substr(0, whole(text_of(mapped)));
    keep = text.size();
    if (keep > 0 && text.back() != '\n') before = "\n";
    give_lines(text, take);
  }
  file.write_behind(keep, before + line + "\n");
  if (made) sync_folder_of(path);
}

}  // namespace mft
