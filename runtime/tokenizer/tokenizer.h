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

/// A token, and the bytes [begin, end) of the text that it stands for: those that share a character have all of it, and
/// those of a replacement all of what was replaced.
struct TextToken {
  int64_t id;
  Span text;
};

/// A tokenizer.json of Hugging Face's `tokenizers`, and the same tokens as that makes of any text: byte-level BPE,
/// SentencePiece's BPE and unigram. What adds BOS or trims spans is no part of it (`post_processor`), nor are
/// truncation and padding.
class Tokenizer {
 public:
  /// Throws Error naming the file where it is damaged, or has a part that is not known here.
  explicit Tokenizer(const std::string& path);

  /// Throws Error where `text` is no UTF-8 or too long.
  std::vector<TextToken> encode(std::string_view text) const;
  /// The text of tokens; ids that no token has are left out, and so are special ones where told.
  std::string decode(const std::vector<int64_t>& ids, bool skip_special) const;

 private:
  Normalizer normalizer_;
  std::unique_ptr<const AddedTokens> added_;
  PreTokenizer pre_tokenizer_;
  std::unique_ptr<const TokenModel> model_;
  TokenDecoder decoder_;
};

}  // namespace mft
