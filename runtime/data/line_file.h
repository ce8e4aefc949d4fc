#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace mft {

/// Lines of JSON in a file to which some are added, one write each. A last line without its end that is no JSON is one
/// whose writing was cut short.

/// Gives every line that is not blank to `take`, without its end, counted from 1; not one cut short. Throws Error.
void for_each_whole_line(const std::string& path,
                         const std::function<void(int64_t number, std::string_view line)>& take);

/// Adds a line, in the place of one cut short, and waits until it is on disk. Throws Error, with the file as it was,
/// where that fails.
void append_line(const std::string& path, const std::string& line);

}  // namespace mft
