#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "runtime/base/error.h"

namespace mft {

/// Maximum size of a JSON text: a hundred times the size for a model of 1,000 layers.
constexpr size_t kMostJsonBytes = size_t{64} << 20;
/// Maximum nesting. Destroying or writing nested JSON uses stack in proportion to the depth.
constexpr int kMostJsonLevels = 64;
/// Maximum number of values, each of which uses up to 100 bytes.
constexpr int64_t kMostJsonValues = 4000000;

/// Maximum number of objects: at the end of each object, the parser visits all earlier ones of the same list.
constexpr int64_t kMostJsonObjects = 100000;

/// Parses JSON. Throws Error, beginning with `error`, if it is invalid, too deep or too large.
template <typename Json>
Json parse_json(std::string_view text, const std::string& error) {
  if (text.size() > kMostJsonBytes)
    fail(error, " (", text.size(), " bytes; at most ", kMostJsonBytes, " are supported)");
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

/// Returns an integer within [least, most]. Throws Error, with `key`, otherwise, and Json::exception if it is missing.
template <typename Json>
int64_t integer(const Json& object, const char* key, int64_t least, int64_t most) {
  const Json& value = object.at(key);
  // A number above the maximum of int64 is unsigned.
  const bool fits =
      value.is_number_integer() && !(value.is_number_unsigned() && value.template get<uint64_t>() > INT64_MAX);
  if (!fits || value.template get<int64_t>() < least || value.template get<int64_t>() > most) {
    fail(key, " is ", value.dump(), "; must be an integer from ", least, " to ", most);
  }
  return value.template get<int64_t>();
}

}  // namespace mft
