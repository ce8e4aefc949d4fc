#pragma once

#include <string>

#include "runtime/jinja/arguments.h"
#include "runtime/jinja/memory.h"
#include "runtime/jinja/value.h"

namespace mft::jinja {

/// Whether the value's type in Python has a method of that name. `call_method` may not support it.
bool is_method(const Value& value, const std::string& name);
/// Whether it is a method that modifies the value, which Jinja's sandbox hides.
bool is_changing_method(const Value& value, const std::string& name);
/// Calls a method of a text, list, dict or loop. Throws Error if it is not supported or fails.
Value call_method(const Value& self, const std::string& name, CallArguments& arguments, Memory& memory);
/// Returns an attribute of the variable `loop`, such as index, first or previtem, or a method of it.
Value loop_attribute(const Value& loop, const std::string& name, Memory& memory);

}  // namespace mft::jinja
