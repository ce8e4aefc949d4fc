#pragma once

#include <string>

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

}  // namespace mft::jinja
