#pragma once

#include <string>

#include "runtime/jinja/arguments.h"
#include "runtime/jinja/memory.h"
#include "runtime/jinja/value.h"

namespace mft::jinja {

/// value|name(arguments). Throws Error if the filter is unknown or fails.
Value apply_filter(const std::string& name, const Value& value, CallArguments& arguments, Memory& memory);
/// value is name(arguments). Throws Error if the test is unknown or fails.
bool apply_test(const std::string& name, const Value& value, CallArguments& arguments, Memory& memory);
/// tojson: returns `value` as JSON, in the format of Transformers' environment.
std::string json_text(const Value& value, CallArguments& arguments, Memory& memory);

}  // namespace mft::jinja
