#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mft::jinja {

enum class TokenType {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kText,
  kInt,
  kFloat,
  kSign,
  kEnd
};

struct Token {
  TokenType type;
  std::string text;  // of a string: its value; of a sign: such as ( or ==
  int line = 1;
};

/// Returns the tokens of a template. Blanks around tags are stripped according to `trim_blocks` and `lstrip_blocks` of
/// Transformers' environment and the signs - and + of tags. The last token is kEnd. Throws Error.
std::vector<Token> tokenize(std::string_view source);

}  // namespace mft::jinja
