#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/base/buffer.h"
#include "runtime/config/generate_config.h"
#include "runtime/model/model.h"

namespace mft {

/// Generates with a KV cache that lives as long as it does: of a prompt that begins as the last one and its answer did,
/// a chat that goes on, only what is new is computed. Prompt and answer together fit the bundle's max_seq_len.
class Generator {
 public:
  /// What it computed holds for the adapter and weights of that time: a model that is prepared anew, or whose adapter
  /// is switched, needs a new generator. The model must be prepared for kPromptTokens tokens, or the bundle's maximum
  /// where that is less.
  explicit Generator(Model& model);
  const Model& model() const { return model_; }

  /// Continues `prompt`; `on_token` hears of each token of the answer as it comes, and ends it by returning false.
  /// Ends at a stop token too, which is not part of the answer. Throws Error where the prompt is empty, too long or
  /// outside the vocabulary.
  std::vector<int64_t> generate(const std::vector<int64_t>& prompt, const GenerateConfig& config,
                                const std::function<bool(int64_t)>& on_token);

  /// A longer prompt goes through the model piece by piece.
  static constexpr int64_t kPromptTokens = 256;
  /// How many tokens to prepare a model for.
  static int64_t prepared_tokens(const Bundle& bundle);

 private:
  void feed(const int64_t* tokens, int64_t count, bool last);

  Model& model_;
  std::vector<int64_t> held_;    // tokens that the units remember
  std::vector<size_t> offsets_;  // of each unit's part in both of these
  Buffer first_;                 // of each unit its keys, or its state
  Buffer second_;                // its values, or room for the next state
  Buffer activations_;           // two of [a piece, hidden]
  std::vector<float> logits_;
};

}  // namespace mft
