#pragma once

#include <ctime>
#include <string>
#include <string_view>

#include "runtime/jinja/arguments.h"
#include "runtime/jinja/memory.h"
#include "runtime/jinja/value.h"

namespace mft::jinja {

/// Functions that every template has.
constexpr const char* kFunctions[] = {"dict", "namespace", "raise_exception", "range", "strftime_now"};
/// What Jinja has besides, and templates may ask for, but not call here.
constexpr const char* kOtherFunctions[] = {"cycler", "joiner", "lipsum"};

/// name(arguments), where `now` is what strftime_now formats. Throws Error where it is not supported, or fails.
Value call_function(const std::string& name, CallArguments& arguments, const std::tm& now, Memory& memory);
/// Throws Error for a name that Transformers lets no attribute of a namespace have.
void check_name(std::string_view name);

}  // namespace mft::jinja
