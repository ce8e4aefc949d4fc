#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/tokenizer/vocabulary.h"

namespace mft {

/// A token of a word, whose bytes it covers after those of the tokens before it.
struct WordToken {
  int64_t id;
  size_t length;  // bytes
};

/// What makes a word tokens.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// Appends the tokens of `word`, which is valid UTF-8.
  virtual void encode(std::string_view word, std::vector<WordToken>& tokens) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  explicit TokenModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  /// The ids of <0x00> to <0xFF>, -1 where there is none.
  std::vector<int64_t> byte_tokens() const;

  Vocabulary vocabulary_;
};

/// What a tokenizer.json's "model" holds; its long lists apart from the rest.
struct ModelFile {
  nlohmann::json options;  // all but vocab and merges
  Vocabulary vocabulary;
  std::vector<double> scores;                               // of Unigram, by id
  std::vector<std::pair<std::string, std::string>> merges;  // of BPE, the first first
};

/// Byte-pair encoding (arXiv 1508.07909), as GPT-2, Llama and SentencePiece have it.
std::unique_ptr<TokenModel> make_bpe(ModelFile file);
/// The split of highest probability, SentencePiece's unigram (arXiv 1804.10959).
std::unique_ptr<TokenModel> make_unigram(ModelFile file);

}  // namespace mft
