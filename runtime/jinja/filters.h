#pragma once

#include <string>

#include "runtime/jinja/arguments.h"
#include "runtime/jinja/memory.h"
#include "runtime/jinja/value.h"

namespace mft::jinja {

/// value|name(arguments). Throws Error where the filter is not known, or fails.
Value apply_filter(const std::string& name, const Value& value, CallArguments& arguments, Memory& memory);
/// value is name(arguments). Throws Error where the test is not known, or fails.
bool apply_test(const std::string& name, const Value& value, CallArguments& arguments, Memory& memory);
/// tojson: `value` as JSON, as Transformers' environment writes it.
std::string json_text(const Value& value, CallArguments& arguments, Memory& memory);

}  // namespace mft::jinja
