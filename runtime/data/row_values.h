#pragma once

#include <string>
#include <string_view>

#include "runtime/jinja/memory.h"
#include "runtime/jinja/value.h"

namespace mft {

/// Returns the value of a key, or nullptr if it is missing or null. Tables have all columns in every row.
const jinja::Value* find(const jinja::Value& dict, std::string_view key);
/// Returns a string. Throws Error, beginning with `what`, for another type.
std::string text_of(const jinja::Value& value, const std::string& what);
/// Returns the value as JSON for errors, shortened if it is long.
std::string shown(const jinja::Value& value);

}  // namespace mft
