#pragma once

#include <nlohmann/json.hpp>

#include "runtime/tokenizer/regex.h"

namespace mft {

/// Reads {"String": text} or {"Regex": pattern}.
inline Regex pattern_of(const nlohmann::json& json) {
  if (json.contains("String")) return Regex::literal(json.at("String").get<std::string>());
  return Regex(json.at("Regex").get<std::string>());
}

}  // namespace mft
