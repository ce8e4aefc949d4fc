#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "runtime/base/error.h"

namespace mft {

/// The largest text of JSON that is read: a hundred times what a model of 1,000 layers needs.
constexpr size_t kMostJsonBytes = size_t{64} << 20;
/// The deepest nesting. To destroy or write deep JSON takes stack in proportion.
constexpr int kMostJsonLevels = 64;
/// How many values it may hold, each of which takes up to 100 bytes.
constexpr int64_t kMostJsonValues = 4000000;

/// How many objects: the parser looks at all those before in the same list as each one ends.
constexpr int64_t kMostJsonObjects = 100000;

/// JSON from `text`. Throws Error that begins with `error` where it is none, too deep or too large.
template <typename Json>
Json parse_json(std::string_view text, const std::string& error) {
  if (text.size() > kMostJsonBytes)
    fail(error, " (", text.size(), " bytes; no more than ", kMostJsonBytes, " are read)");
  int64_t values = 0, objects = 0;
  const auto check = [&](int depth, typename Json::parse_event_t event, Json&) {
    const bool opens = event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    if (opens && depth >= kMostJsonLevels) fail(error, " (nested deeper than ", kMostJsonLevels, " levels)");
    if (event == Json::parse_event_t::object_start && ++objects > kMostJsonObjects) {
      fail(error, " (more than ", kMostJsonObjects, " objects)");
    }
    if (++values > kMostJsonValues) fail(error, " (more than ", kMostJsonValues, " values)");
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const typename Json::exception& reason) {
    fail(error, " (", reason.what(), ")");
  }
}

/// A whole number within [least, most]. Throws Error naming `key` otherwise, Json::exception where it is missing.
template <typename Json>
int64_t integer(const Json& object, const char* key, int64_t least, int64_t most) {
  const Json& value = object.at(key);
  // A number above int64's largest counts as unsigned.
  const bool fits =
      value.is_number_integer() && !(value.is_number_unsigned() && value.template get<uint64_t>() > INT64_MAX);
  if (!fits || value.template get<int64_t>() < least || value.template get<int64_t>() > most) {
    fail(key, " is ", value.dump(), "; must be a whole number from ", least, " to ", most);
  }
  return value.template get<int64_t>();
}

}  // namespace mft
