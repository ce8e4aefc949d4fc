#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace mft {

/// What the runtime throws: one line that names the file, row or value at fault and what would be right.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws Error with the arguments written one after another.
template <typename... Args>
[[noreturn]] void fail(const Args&... args) {
  std::ostringstream message;
  (message << ... << args);
  throw Error(message.str());
}

}  // namespace mft
