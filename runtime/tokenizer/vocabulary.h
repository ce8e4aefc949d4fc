#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mft {

/// Maps texts to tokens and tokens to texts, with little more memory than the texts.
class Vocabulary {
 public:
  /// Throws Error if the text or the id is duplicated, or the id is negative or too large.
  void add(std::string_view text, int64_t id);
  /// Returns -1 if there is no such token.
  int64_t find(std::string_view text) const;
  bool has(int64_t id) const { return id >= 0 && id < size() && tokens_[static_cast<size_t>(id)].length != kNone; }
  std::string_view text(int64_t id) const {
    const Token& token = tokens_[static_cast<size_t>(id)];
    return {texts_.data() + token.begin, token.length};
  }
  size_t count() const { return count_; }
  /// One more than the largest id.
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Token {
    uint32_t begin = 0, length = kNone;
  };

  size_t slot(std::string_view text) const;
  void grow();

  std::string texts_;
  std::vector<Token> tokens_;    // index: id
  std::vector<uint32_t> slots_;  // hash table of ids by text; kNone if empty
  size_t count_ = 0;
};

}  // namespace mft
