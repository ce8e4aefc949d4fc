#pragma once

#include <string>
#include <string_view>

#include "runtime/jinja/memory.h"
#include "runtime/jinja/value.h"

namespace mft::jinja {

/// Parses JSON text. Keys keep their order; of a duplicate key, the last value counts, as in Python. Throws Error if
/// the text is not JSON, is nested deeper than kMostDepth, or has an integer of more than 63 bits.
Value read_json(std::string_view text, Memory& memory);

}  // namespace mft::jinja
