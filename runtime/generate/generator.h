#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/base/buffer.h"
#include "runtime/config/generate_config.h"
#include "runtime/generate/adapters.h"
#include "runtime/model/half_adapter.h"
#include "runtime/model/model.h"

namespace mft {

/// Generates answers with a KV cache. If a prompt begins with the last prompt and its answer, as in a chat, only the
/// new tokens are computed. Prompt and answer together must fit the bundle's max_seq_len.
class Generator {
 public:
  /// Answers with the model's current adapter. The cache is valid only for this one and the current weights: after the
  /// model is prepared again, create a new generator. A model that a trainer prepared for fewer than `prepared_tokens`
  /// reads prompts in shorter pieces.
  explicit Generator(Model& model);
  /// Answers with the adapter in `folder` from now on (empty: the bundle's own). Adapters that were used before are
  /// still in memory, unless their files have changed. Throws Error if it cannot be used; then nothing changes.
  void use_adapter(const std::string& folder);
  /// Answers without an adapter from now on.
  void use_no_adapter();
  const Model& model() const { return model_; }

  /// Continues `prompt`. Calls `on_token` with each token of the answer; returning false ends the answer. A stop token
  /// also ends the answer and is not part of it. Calls `on_prompt`, if it is given, between pieces of a long prompt;
  /// returning false ends the answer before its first token. Throws Error if the prompt is empty, too long or not in
  /// the vocabulary.
  std::vector<int64_t> generate(const std::vector<int64_t>& prompt, const GenerateConfig& config,
                                const std::function<bool(int64_t)>& on_token,
                                const std::function<bool()>& on_prompt = {});

  /// Computes `prompt` as `generate` does. Returns the logits [vocab_size] of what follows it, until the next call.
  const std::vector<float>& logits_after(const std::vector<int64_t>& prompt, const GenerateConfig& config);

  /// Longer prompts are computed in pieces of this size.
  static constexpr int64_t kPromptTokens = 256;
  /// The number of tokens to prepare a model for.
  static int64_t prepared_tokens(const Bundle& bundle);

 private:
  void forget();
  void use(Compute compute, KvFormat kv_format);
  bool take(const std::vector<int64_t>& prompt, const std::function<bool()>& on_prompt);
  void feed(const int64_t* tokens, int64_t count, int64_t logit_rows);
  void drop_guesses(size_t fed, size_t right);
  bool has_states() const;

  Model& model_;
  const int64_t piece_;  // the most tokens to compute at once
  Adapters adapters_;
  HalfAdapter own_half_;               // of the adapter that the model had, or of none
  const HalfLora* half_ = nullptr;     // of the adapter in use
  std::vector<int64_t> held_;          // tokens in the cache
  std::vector<int64_t> prompt_;        // the last prompt, with which the cache begins; empty: none
  std::vector<float> prompt_logits_;   // of what follows it
  Compute compute_ = Compute::kInt15;  // with which they were computed
  KvFormat kv_format_ = KvFormat::kFloat16;
  std::vector<size_t> offsets_;  // of each unit's part in both buffers; none before the first answer
  Buffer first_;                 // keys, or the state, of each unit
  Buffer second_;                // values, or the next state, of each unit
  Buffer fresh_;                 // the keys and values of the tokens that a unit computes
  Buffer activations_;           // two buffers of [a piece, hidden]
  std::vector<float> logits_;    // of the last tokens, a row each
};

}  // namespace mft
