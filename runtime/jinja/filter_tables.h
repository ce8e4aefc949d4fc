#pragma once

#include <string_view>
#include <unordered_map>

#include "runtime/jinja/arguments.h"
#include "runtime/jinja/memory.h"
#include "runtime/jinja/value.h"

namespace mft::jinja {

using Filter = Value (*)(const Value& value, CallArguments& arguments, Memory& memory);
using FilterTable = std::unordered_map<std::string_view, Filter>;

/// Filters of lists and other iterables, by name.
const FilterTable& list_filters();
/// Filters that return numbers, by name.
const FilterTable& number_filters();

}  // namespace mft::jinja
