#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "runtime/tokenizer/source_text.h"

namespace mft {

/// Splits every piece that is not a token yet into words.
using PreTokenizer = std::function<void(Pieces&)>;

/// Reads a tokenizer.json's "pre_tokenizer": null, Sequence, ByteLevel, Split, Digits or Metaspace. Throws Error for
/// any other.
PreTokenizer make_pre_tokenizer(const nlohmann::json& json);

/// Metaspace's character for a space, and when it is added before a word: always, first or never.
std::string metaspace_mark(const nlohmann::json& json);
std::string metaspace_scheme(const nlohmann::json& json);

/// GPT-2's character for a byte, and the byte of such a character, or -1 for others.
char32_t byte_character(unsigned char byte);
int character_byte(char32_t c);

}  // namespace mft
