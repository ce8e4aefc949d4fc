#pragma once

#include <cstdint>
#include <vector>

#include "runtime/core/buffer.h"
#include "runtime/core/model.h"
#include "runtime/core/random.h"

namespace mft {

/// Generates tokens one by one with a KV cache. Prompt and answer together fit the bundle's max_seq_len.
class Generator {
 public:
  /// The model must be prepared for `prompt_tokens` tokens. `temperature` 0 takes the likeliest token.
  Generator(Model& model, int64_t prompt_tokens, double temperature, uint64_t seed);

  /// Feeds tokens (the prompt, or the last token) and gives the next one. Throws Error where the cache is full.
  int64_t next(const std::vector<int64_t>& tokens);

 private:
  Model& model_;
  double temperature_;
  Random random_;
  int64_t past_ = 0;
  Buffer keys_;  // [attention units, max_seq_len, kv_heads * head_dim]
  Buffer values_;
  Buffer activations_;
  Buffer logits_;
};

}  // namespace mft
