#pragma once

#include <string>
#include <string_view>

#include "runtime/jinja/memory.h"
#include "runtime/jinja/value.h"

namespace mft::jinja {

/// A value of JSON text, with keys in their order; of a key that is there twice the last value counts, as in Python.
/// Throws Error where it is no JSON, nests deeper than kMostDepth, or holds an integer of more than 63 bits.
Value read_json(std::string_view text, Memory& memory);

}  // namespace mft::jinja
