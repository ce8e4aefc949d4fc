#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/tokenizer/token_model.h"

namespace mft {

/// A parsed tokenizer.json. The vocabulary and merges, which may be a million texts, are never stored as JSON values.
struct TokenizerFile {
  nlohmann::json parts;  // "normalizer", "pre_tokenizer", "decoder", "added_tokens", ...; not "model"
  std::string type;      // type of the model, "BPE" or "Unigram"
  ModelFile model;
};

/// Throws Error, or nlohmann::json::exception if a part has the wrong type.
TokenizerFile parse_tokenizer_file(const std::string& text);

}  // namespace mft
