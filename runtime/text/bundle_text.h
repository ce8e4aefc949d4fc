#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/bundle/bundle.h"
#include "runtime/text/chat_template.h"
#include "runtime/tokenizer/tokenizer.h"

namespace mft {

/// Text as tokens, and whether each is to be learned.
struct EncodedText {
  std::vector<int64_t> tokens;
  std::vector<bool> learned;
};

/// How a bundle's model reads text: tokenizer.json, tokenizer_config.json with the chat template, and text.json
/// (docs/reference/bundle_format.md).
class BundleText {
 public:
  /// Throws Error naming the file where one is missing, or not what was exported.
  explicit BundleText(const Bundle& bundle)
      : BundleText{bundle.verified("tokenizer.json"), bundle.verified("tokenizer_config.json"),
                   bundle.verified("text.json")} {}
  /// The three files' paths.
  BundleText(const std::string& tokenizer_json, const std::string& tokenizer_config_json, const std::string& text_json);

  /// Tokens of a text that a chat template rendered, of which the bytes [begin, end) in `learned` are learned.
  EncodedText rendered(const std::string& text, const std::vector<std::pair<size_t, size_t>>& learned) const;
  /// Tokens of any other text: behind BOS if the model has that and the text does not begin with it, and with the
  /// token that ends a text behind it, which is learned, if the text does not end with such a token.
  EncodedText plain(const std::string& text, const std::vector<std::pair<size_t, size_t>>& learned) const;
  /// What an answer to the last message follows. Throws Error where the model has no chat template or it refuses.
  std::vector<int64_t> prompt(const Chat& chat, const TemplateSettings& settings = {}) const;

  const Tokenizer& tokenizer() const { return tokenizer_; }
  /// nullptr: the model has none.
  const ChatTemplate* chat_template() const { return chat_template_ ? &*chat_template_ : nullptr; }
  /// Any of which ends an answer.
  const std::vector<int64_t>& end_tokens() const { return ends_; }

 private:
  Tokenizer tokenizer_;
  std::vector<int64_t> begin_, ends_;  // begin_: BOS, or nothing
  std::optional<ChatTemplate> chat_template_;
};

}  // namespace mft
