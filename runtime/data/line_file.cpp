#include "runtime/data/line_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/platform/disk.h"

namespace mft {
namespace {

constexpr const char* kBlank = " \t\r\n\v\f";

/// Whether this is incomplete JSON.
bool breaks_off(std::string_view text) {
  try {
    const auto keep_none = [](int, nlohmann::json::parse_event_t, nlohmann::json&) { return false; };
    std::ignore = nlohmann::json::parse(text, keep_none);
    return false;
  } catch (const nlohmann::json::parse_error& error) {
    return error.byte > text.size();
  } catch (const nlohmann::json::exception&) {  // a number is too large
    return false;
  }
}

/// The size of `text` up to the end of its last complete line. File systems fill in zeros for data that was not written
/// to disk.
size_t whole(std::string_view text) {
  const size_t end = text.rfind('\n') + 1;  // npos + 1 is 0
  const std::string_view rest = text.substr(end), tail = rest.substr(0, rest.find('\0'));
  if (tail.find_first_not_of(kBlank) != tail.npos) return breaks_off(tail) ? end : end + tail.size();
  if (!rest.empty()) return end;
  // The end of a long line may be on disk, but not its beginning.
  const size_t last = end == 0 ? 0 : text.substr(0, end - 1).rfind('\n') + 1;
  return text.find('\0', last) == text.npos ? text.size() : last;
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
  if (uninterrupted([&] { return flock(fd, kind); }) != 0) fail(path, ": ", std::strerror(errno));
}

/// A file, locked and open for appending. It is created if it does not exist.
class Appending {
 public:
  explicit Appending(const std::string& path)
      : path_(path), fd_(uninterrupted([&] { return open(path.c_str(), kFlags, 0644); })) {
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

  /// Writes `text` after the first `keep` bytes.
  void write_behind(uint64_t keep, std::string_view text) const {
    if (cut(keep) && write_all(text) && uninterrupted([&] { return sync_to_disk(fd_); }) == 0) return;
    const int reason = errno;
    const bool undone = cut(keep);
    fail(path_, ": cannot save the row (", std::strerror(reason), ")", undone ? "; earlier rows are unchanged" : "");
  }

 private:
  static constexpr int kFlags = O_RDWR | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC;

  bool cut(uint64_t size) const {
    return uninterrupted([&] { return ftruncate(fd_, static_cast<off_t>(size)); }) == 0;
  }

  bool write_all(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t n = uninterrupted([&] { return write(fd_, text.data(), text.size()); });
      if (n < 0) return false;
      text.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  const std::string& path_;
  int fd_;
};

}  // namespace

void for_each_line(const std::string& path, const TakeLine& take, LinesOf writer) {
  const OpenFile file(path);
  lock(file.descriptor(), path,
       LOCK_SH);  // so that no process removes an incomplete line, whose mapped bytes would then kill this process
  const OpenFile now(path);  // its size under the lock
  if (now.size() == 0) return;
  const MappedRange mapped(now, 0, now.size());
  const std::string_view text = text_of(mapped);
  give_lines(writer == LinesOf::kUs ? text.substr(0, whole(text)) : text, take);
}

void append_line(const std::string& path, const std::string& line, const TakeLine& take) {
  const Appending file(path);
  uint64_t keep = file_size(path);
  if (keep == 0) {
    sync_folder_of(path);  // before any data is written
  } else {
    const OpenFile open(path);
    const MappedRange mapped(open, 0, keep);
    const std::string_view text = text_of(mapped).substr(0, whole(text_of(mapped)));
    keep = text.size();
    give_lines(text, take);
    if (keep > 0 && text.back() != '\n')
      file.write_behind(keep++, "\n");  // written separately, because it completes an existing row
  }
  file.write_behind(keep, line + "\n");
}

}  // namespace mft
