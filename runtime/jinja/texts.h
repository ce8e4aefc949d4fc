#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/jinja/memory.h"
#include "runtime/jinja/value.h"
#include "runtime/unicode/unicode.h"

namespace mft::jinja {

constexpr size_t kCasePrice = 8;  // per byte that is looked up in Unicode's tables

/// Whether str.isspace() is true for a character.
inline bool is_python_space(char32_t c) { return is_space(c) || (c >= 0x1c && c <= 0x1f); }
/// Return the first occurrence of `wanted` from `from` on, and the last occurrence before `end`, or npos.
size_t found_in(std::string_view text, std::string_view wanted, size_t from, Memory& memory);
size_t found_before(std::string_view text, std::string_view wanted, size_t end, Memory& memory);
/// str.strip(), lstrip() and rstrip(): removes `characters` (nullptr: blanks) from the left end, the right end, or
/// both.
enum class Ends { kLeft, kRight, kBoth };
std::string stripped(const std::string& text, const std::string* characters, Ends ends, Memory& memory);
/// str.replace().
std::string replaced(const std::string& text, const std::string& old, const std::string& with, int64_t most,
                     Memory& memory);
/// Converts a text to upper, lower or title case, and charges the cost.
std::string cased(const std::string& text, std::string (*how)(std::string_view), Memory& memory);
/// str.join().
std::string joined(const std::string& between, const std::vector<Value>& items, Memory& memory);

}  // namespace mft::jinja
