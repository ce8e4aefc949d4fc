#pragma once

#include <string>
#include <string_view>

#include "runtime/jinja/memory.h"
#include "runtime/jinja/value.h"

namespace mft {

/// The value of a key that is there and not null; nullptr otherwise. Tables have all columns in every row.
const jinja::Value* find(const jinja::Value& dict, std::string_view key);
/// A text. Throws Error that begins with `what`.
std::string text_of(const jinja::Value& value, const std::string& what);
/// As JSON, cut where it is long; for errors.
std::string shown(const jinja::Value& value);

}  // namespace mft
