#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/tokenizer/token_model.h"

namespace mft {

/// A tokenizer.json as it is read: its vocabulary and merges, which may be a million texts, never as JSON values.
struct TokenizerFile {
  nlohmann::json parts;  // "normalizer", "pre_tokenizer", "decoder", "added_tokens", ...; not "model"
  std::string type;      // of the model, "BPE" or "Unigram"
  ModelFile model;
};

/// Throws Error, or nlohmann::json::exception where a part has another type than it should.
TokenizerFile parse_tokenizer_file(const std::string& text);

}  // namespace mft
