#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace mft {

/// Lines of JSON in a file to which several processes may add some, one write each. A last line without its end that
/// breaks off is one whose writing was cut short, and not counted.

using TakeLine = std::function<void(int64_t number, std::string_view line)>;

/// Gives every line that is not blank to `take`, without its end and the blanks around it, counted from 1. Throws
/// Error.
void for_each_line(const std::string& path, const TakeLine& take);

/// Adds a line, in the place of one cut short, and waits until it is on disk. `take` sees those before it, while no
/// other is added, and may refuse. Throws Error, with the file as it was, where that fails.
void append_line(const std::string& path, const std::string& line, const TakeLine& take);

}  // namespace mft
