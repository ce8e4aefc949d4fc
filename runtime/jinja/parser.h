#pragma once

#include <string_view>

#include "runtime/jinja/syntax.h"

namespace mft::jinja {

/// Numbers of the variables that the interpreter sets.
enum KnownName { kLoopName, kCallerName, kVarargsName, kKwargsName };

/// Parses a template. Throws Error, with the line, if `source` is not a template or is nested too deeply.
Syntax parse(std::string_view source);

}  // namespace mft::jinja
