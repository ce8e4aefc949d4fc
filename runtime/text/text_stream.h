#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/tokenizer/tokenizer.h"

namespace mft {

/// Decodes generated tokens piece by piece. A piece never ends within a character. Special tokens have no text. NUL
/// becomes the replacement character, because a piece that is a C string would end there.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  /// Adds a token. Returns the text that is now complete, which may be empty.
  std::string add(int64_t token);
  /// Returns the remaining text. Bytes that are not a complete character become the replacement character.
  std::string finish() const;

 private:
  std::string pending_text() const;

  const Tokenizer& tokenizer_;
  // Some decoded tokens are kept before the pending ones, because a token's text, such as its leading space, can depend
  // on the previous token.
  std::vector<int64_t> shown_, pending_;
};

}  // namespace mft
