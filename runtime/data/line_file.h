#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace mft {

/// A file of JSON lines to which several processes may append, with one write per line. An incomplete last line, from
/// an interrupted write, is ignored, unless the file is one that others wrote.

using TakeLine = std::function<void(int64_t number, std::string_view line)>;

/// Whether a file was written by `append_line`, or by others.
enum class LinesOf { kUs, kOthers };

/// Calls `take` with every non-blank line, without its end and surrounding blanks, and its number from 1. Throws
/// Error.
void for_each_line(const std::string& path, const TakeLine& take, LinesOf writer = LinesOf::kUs);

/// Appends a line, overwrites an incomplete one, and syncs the file to disk. `take` is called with the earlier lines,
/// while the file is locked, and may throw to reject the line. Throws Error, without changing the file, if that fails.
void append_line(const std::string& path, const std::string& line, const TakeLine& take);

}  // namespace mft
