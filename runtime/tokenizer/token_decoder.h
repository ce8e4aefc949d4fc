#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace mft {

/// Converts the texts of tokens to the parts of the decoded text.
using TokenDecoder = std::function<void(std::vector<std::string>&)>;

/// Reads a tokenizer.json's "decoder": null, Sequence, ByteLevel, Replace, ByteFallback, Fuse, Strip or Metaspace.
/// Throws Error for any other.
TokenDecoder make_token_decoder(const nlohmann::json& json);

}  // namespace mft
