#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tokenizer/added_tokens.h"
#include "runtime/tokenizer/pre_tokenizer.h"
#include "runtime/tokenizer/token_decoder.h"
#include "runtime/tokenizer/token_model.h"

namespace mft {

/// A token, and the bytes [begin, end) of the text that it represents. Tokens that share a character have the bytes of
/// the whole character, and tokens of a replacement have all replaced bytes.
struct TextToken {
  int64_t id;
  Span text;
};

/// Tokenizes text with a tokenizer.json of Hugging Face's `tokenizers`, with the same tokens as that library:
/// byte-level BPE, SentencePiece's BPE and unigram. It does not apply the `post_processor`, which adds BOS or trims
/// spans, truncation or padding.
class Tokenizer {
 public:
  /// Throws Error, with the file's name, if it is damaged or has an unsupported part.
  explicit Tokenizer(const std::string& path);

  /// Throws Error if `text` is not UTF-8 or too long.
  std::vector<TextToken> encode(std::string_view text) const;
  /// Decodes tokens. Unknown ids are left out, and optionally special tokens.
  std::string decode(const std::vector<int64_t>& ids, bool skip_special) const;

 private:
  Normalizer normalizer_;
  std::unique_ptr<const AddedTokens> added_;
  PreTokenizer pre_tokenizer_;
  std::unique_ptr<const TokenModel> model_;
  TokenDecoder decoder_;
};

}  // namespace mft
