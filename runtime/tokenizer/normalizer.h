#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "runtime/tokenizer/source_text.h"

namespace mft {

/// Normalizes a text before it is split into words.
using Normalizer = std::function<void(SourceText&)>;

/// Reads a tokenizer.json's "normalizer": null, Sequence, NFC, Replace, Prepend or Strip. Throws Error for any other.
Normalizer make_normalizer(const nlohmann::json& json);

}  // namespace mft
