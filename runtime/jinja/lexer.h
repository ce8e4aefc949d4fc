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
  std::string text;  // of a string: what it stands for; of a sign: ( or == or any other
  int line = 1;
};

/// The tokens of a template, with the blanks around tags taken off as `trim_blocks` and `lstrip_blocks` of
/// Transformers' environment and the signs - and + of tags want it. The last one is kEnd. Throws Error.
std::vector<Token> tokenize(std::string_view source);

}  // namespace mft::jinja
