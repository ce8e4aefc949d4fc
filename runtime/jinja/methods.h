#pragma once

#include <string>
#include <string_view>

#include "runtime/jinja/arguments.h"
#include "runtime/jinja/memory.h"
#include "runtime/jinja/value.h"

namespace mft::jinja {

/// Whether Python's type of the value has a method of that name, which `call_method` may not support.
bool is_method(const Value& value, const std::string& name);
/// Whether it is a method that changes the value, which Jinja's sandbox hides.
bool is_changing_method(const Value& value, const std::string& name);
/// Calls a method of a text, list, dict or loop. Throws Error where it is not supported, or fails.
Value call_method(const Value& self, const std::string& name, CallArguments& arguments, Memory& memory);
/// index, first, previtem and so on of the variable `loop`, or a method of it.
Value loop_attribute(const Value& loop, const std::string& name, Memory& memory);

/// Where `wanted` first occurs from `from` on, and where it last occurs before `end`; npos where it does not.
size_t found_in(std::string_view text, std::string_view wanted, size_t from, Memory& memory);
size_t found_before(std::string_view text, std::string_view wanted, size_t end, Memory& memory);
/// str.strip() and its like: what is among `characters` is taken off the left end, the right one, or both. Blanks where
/// `characters` is nullptr.
enum class Ends { kLeft, kRight, kBoth };
std::string stripped(const std::string& text, const std::string* characters, Ends ends, Memory& memory);
/// str.replace().
std::string replaced(const std::string& text, const std::string& old, const std::string& with, int64_t most,
                     Memory& memory);
/// A text in upper, lower or title case, paid for.
std::string cased(const std::string& text, std::string (*how)(std::string_view), Memory& memory);
/// str.join().
std::string joined(const std::string& between, const std::vector<Value>& items, Memory& memory);

}  // namespace mft::jinja
