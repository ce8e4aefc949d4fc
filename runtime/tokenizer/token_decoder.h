#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace mft {

/// Tokens' texts to what is joined to the text they spell.
using TokenDecoder = std::function<void(std::vector<std::string>&)>;

/// Of a tokenizer.json's "decoder": null, Sequence, ByteLevel, Replace, ByteFallback, Fuse, Strip or Metaspace. Throws
/// Error naming any other.
TokenDecoder make_token_decoder(const nlohmann::json& json);

}  // namespace mft
