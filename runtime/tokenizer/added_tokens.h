#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/tokenizer/normalizer.h"
#include "runtime/tokenizer/prefix_table.h"
#include "runtime/tokenizer/source_text.h"
#include "runtime/tokenizer/vocabulary.h"

namespace mft {

/// Tokens such as <|im_start|> that are matched before a text is split into words.
class AddedTokens {
 public:
  /// Reads a tokenizer.json's "added_tokens". Throws Error if one is damaged, or has another id than in Hugging Face's
  /// library: that of the vocabulary, or the next one after it.
  AddedTokens(const nlohmann::json& json, const Normalizer& normalizer, const Vocabulary& vocabulary);

  /// Matches the tokens that apply to the given text, or to the normalized one. The text between matches becomes pieces
  /// without a token. At each position, the longest match counts.
  void split(Pieces& pieces, bool normalized) const;

  /// Returns the text of an added token, or nullptr for other tokens.
  const std::string* text(int64_t id) const;
  bool is_special(const std::string& text) const { return special_.count(text) != 0; }

 private:
  struct Token {
    std::string matched;
    int64_t id;
    bool single_word, left, right;
  };
  struct Found {
    const Token* token;
    size_t begin, end;
  };

  std::vector<Found> find_all(const std::string& text, bool normalized) const;

  std::vector<Token> tokens_;
  PrefixTable by_match_[2];  // for given and for normalized texts: indices of tokens_
  std::unordered_map<int64_t, const Token*> by_id_;
  std::unordered_set<std::string> special_;
};

}  // namespace mft
