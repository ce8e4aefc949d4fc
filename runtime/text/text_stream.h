#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/tokenizer/tokenizer.h"

namespace mft {

/// Turns generated tokens into text piece by piece, never half a character. Special tokens have no text.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  /// The text that is complete now that `token` has come; often one word, sometimes empty.
  std::string add(int64_t token);
  /// What is left; the replacement character stands for bytes that never became a character.
  std::string finish() const;

 private:
  const Tokenizer& tokenizer_;
  // What is shown stays in front of what is pending: a token's text, its leading space say, can depend on the one
  // before.
  std::vector<int64_t> shown_, pending_;
};

}  // namespace mft
