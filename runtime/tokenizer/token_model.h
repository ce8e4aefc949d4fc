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

/// A token of a word. It covers `length` bytes after the previous token.
struct WordToken {
  int64_t id;
  size_t length;  // bytes
};

/// A tokenizer model, which splits words into tokens.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// Appends the tokens of `word`, which is valid UTF-8.
  virtual void encode(std::string_view word, std::vector<WordToken>& tokens) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  explicit TokenModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  /// The ids of <0x00> to <0xFF>, or -1 if there is none.
  std::vector<int64_t> byte_tokens() const;

  Vocabulary vocabulary_;
};

/// The content of a tokenizer.json's "model", with its long lists separate.
struct ModelFile {
  nlohmann::json options;  // all except vocab and merges
  Vocabulary vocabulary;
  std::vector<double> scores;                               // Unigram only; index: id
  std::vector<std::pair<std::string, std::string>> merges;  // BPE only, in order of rank
};

/// Byte-pair encoding (arXiv 1508.07909), in the variants of GPT-2, Llama and SentencePiece.
std::unique_ptr<TokenModel> make_bpe(ModelFile file);
/// SentencePiece's unigram model (arXiv 1804.10959), which uses the split with the highest probability.
std::unique_ptr<TokenModel> make_unigram(ModelFile file);

}  // namespace mft
