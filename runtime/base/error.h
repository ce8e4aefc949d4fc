#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace mft {

/// Returns `text` as one printable line: control characters and invalid UTF-8 become \xNN, and long text is shortened.
/// Errors quote names from files, and are shown on terminals and written as JSON.
std::string one_line(std::string_view text);

/// The runtime's exception. The message is one line that names the file, row or value, and says what would be right.
class Error : public std::runtime_error {
 public:
  explicit Error(std::string_view message) : std::runtime_error(one_line(message)) {}
};

/// Throws Error with the concatenated arguments.
template <typename... Args>
[[noreturn]] void fail(const Args&... args) {
  std::ostringstream message;
  (message << ... << args);
  throw Error(message.str());
}

}  // namespace mft
