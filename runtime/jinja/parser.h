#pragma once

#include <string_view>

#include "runtime/jinja/syntax.h"

namespace mft::jinja {

/// Variables that the interpreter sets have these numbers.
enum KnownName { kLoopName, kCallerName, kVarargsName, kKwargsName };

/// Throws Error naming the line where `source` is no template, or nests deeper than is safe.
Syntax parse(std::string_view source);

}  // namespace mft::jinja
