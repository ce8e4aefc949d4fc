#pragma once

#include <ctime>
#include <string>
#include <string_view>

#include "runtime/jinja/arguments.h"
#include "runtime/jinja/memory.h"
#include "runtime/jinja/value.h"

namespace mft::jinja {

/// Functions that all templates can call.
constexpr const char* kFunctions[] = {"dict", "namespace", "raise_exception", "range", "strftime_now"};
/// Other functions of Jinja. Templates may test for them, but cannot call them.
constexpr const char* kOtherFunctions[] = {"cycler", "joiner", "lipsum"};

/// Calls name(arguments). strftime_now formats `now`. Throws Error if the function is not supported or fails.
Value call_function(const std::string& name, CallArguments& arguments, const std::tm& now, Memory& memory);
/// Throws Error if Transformers does not allow an attribute of a namespace with this name.
void check_name(std::string_view name);

}  // namespace mft::jinja
