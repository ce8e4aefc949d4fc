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

/// Tokens that are found in a text before it is split into words: <|im_start|> and the like.
class AddedTokens {
 public:
  /// Of a tokenizer.json's "added_tokens". Throws Error where one is damaged, or has another id than Hugging Face gives
  /// it: that of the vocabulary, or the next one behind it.
  AddedTokens(const nlohmann::json& json, const Normalizer& normalizer, const Vocabulary& vocabulary);

  /// Those that are looked for in the text as it was given, or in the normalized one. Pieces without a token in place
  /// of what lies around those found; of several that match at a place the longest counts.
  void split(Pieces& pieces, bool normalized) const;

  /// What a token decodes from; nullptr where it is no added one.
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
  PrefixTable by_match_[2];  // of given and of normalized texts: indices into tokens_
  std::unordered_map<int64_t, const Token*> by_id_;
  std::unordered_set<std::string> special_;
};

}  // namespace mft
