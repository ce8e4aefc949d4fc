#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/core/bundle.h"
#include "runtime/text/chat_table.h"
#include "runtime/text/tokenizer.h"

namespace mft {

/// A row as tokens, and whether each is to be learned.
struct EncodedText {
  std::vector<int64_t> tokens;
  std::vector<bool> learned;
};

/// How a bundle's model reads text: tokenizer.json and text.json (docs/bundle_format.md). Rows become the tokens that
/// `mobile-ft train` makes of them.
class BundleText {
 public:
  /// Throws Error naming the file where one is missing, or not what was exported.
  explicit BundleText(const Bundle& bundle)
      : BundleText{bundle.verified("tokenizer.json"), bundle.verified("text.json")} {}
  /// The two files' paths.
  BundleText(const std::string& tokenizer_json, const std::string& text_json);

  /// A dialogue, of which the assistant's answers from message `learned_from` on are learned.
  EncodedText chat(const std::vector<Message>& messages, size_t learned_from = 0) const;
  /// A question and its answer, as a dialogue where the model has a chat template.
  EncodedText pair(const std::string& prompt, const std::string& completion) const;
  /// Plain text, all of it learned.
  EncodedText text(const std::string& text) const;
  /// What an answer to the last message follows.
  std::vector<int64_t> prompt(const std::vector<Message>& messages) const;

  const Tokenizer& tokenizer() const { return tokenizer_; }
  /// Any of which ends an answer.
  const std::vector<int64_t>& end_tokens() const { return ends_; }

 private:
  const ChatTable& chat_table() const;

  Tokenizer tokenizer_;
  std::vector<int64_t> begin_, ends_;  // begin_: BOS, or nothing
  bool has_template_ = true;
  std::optional<ChatTable> chat_;
  std::string no_chat_;  // why there is none
};

}  // namespace mft
