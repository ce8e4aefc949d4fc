#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace mft {

/// `text` as one printable line: control characters and bytes that are no UTF-8 as \xNN, cut where it is too long to be
/// read. Names out of files go into errors, and on to terminals and JSON.
std::string one_line(std::string_view text);

/// What the runtime throws: one line that names the file, row or value at fault and what would be right.
class Error : public std::runtime_error {
 public:
  explicit Error(std::string_view message) : std::runtime_error(one_line(message)) {}
};

/// Throws Error with the arguments written one after another.
template <typename... Args>
[[noreturn]] void fail(const Args&... args) {
  std::ostringstream message;
  (message << ... << args);
  throw Error(message.str());
}

}  // namespace mft
