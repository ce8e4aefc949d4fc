/// The C API's tokenizer.

#include "runtime/tokenizer/tokenizer.h"

#include <algorithm>
#include <vector>

#include "runtime/c_api/call.h"

using mft::guarded;
using mft::require;
using mft::require_path;

struct mft_tokenizer {
  mft::Tokenizer tokenizer;
};

mft_status mft_tokenizer_open(const char* tokenizer_json, mft_tokenizer** tokenizer) {
  if (tokenizer != nullptr) *tokenizer = nullptr;
  return guarded([&] {
    require(tokenizer, "tokenizer");
    require_path(tokenizer_json, "tokenizer_json");
    *tokenizer = new mft_tokenizer{mft::Tokenizer(tokenizer_json)};
  });
}

void mft_tokenizer_close(mft_tokenizer* tokenizer) { delete tokenizer; }

mft_status mft_tokenizer_encode(const mft_tokenizer* tokenizer, const char* text, int64_t* tokens, size_t capacity,
                                size_t* count) {
  return guarded([&] {
    require(tokenizer, "tokenizer");
    require(text, "text");
    require(count, "count");
    if (capacity > 0) require(tokens, "tokens");
    const std::vector<mft::TextToken> found = tokenizer->tokenizer.encode(text);
    for (size_t i = 0; i < std::min(capacity, found.size()); ++i) tokens[i] = found[i].id;
    *count = found.size();
  });
}

mft_status mft_tokenizer_decode(const mft_tokenizer* tokenizer, const int64_t* tokens, size_t token_count,
                                int skip_special, char* text, size_t capacity, size_t* length) {
  return guarded([&] {
    require(tokenizer, "tokenizer");
    if (token_count > 0) require(tokens, "tokens");
    require(length, "length");
    if (capacity > 0) require(text, "text");
    const std::string spelled = tokenizer->tokenizer.decode({tokens, tokens + token_count}, skip_special != 0);
    if (capacity > 0) text[spelled.copy(text, capacity - 1)] = 0;
    *length = spelled.size();
  });
}
