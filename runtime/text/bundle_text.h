#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/bundle/bundle.h"
#include "runtime/text/chat_template.h"
#include "runtime/tokenizer/tokenizer.h"

namespace mft {

/// The tokens of a text, and whether each is learned.
struct EncodedText {
  std::vector<int64_t> tokens;
  std::vector<bool> learned;
};

/// The tokenizer and chat template of a bundle, from tokenizer.json, tokenizer_config.json and text.json
/// (docs/reference/bundle_format.md).
class BundleText {
 public:
  /// Throws Error, with the file's name, if one is missing or its checksum does not match.
  explicit BundleText(const Bundle& bundle)
      : BundleText{bundle.verified("tokenizer.json"), bundle.verified("tokenizer_config.json"),
                   bundle.verified("text.json")} {}
  /// Arguments are the paths of the three files.
  BundleText(const std::string& tokenizer_json, const std::string& tokenizer_config_json, const std::string& text_json);

  /// Tokenizes a text that a chat template rendered. The bytes [begin, end) in `learned` are learned.
  EncodedText rendered(const std::string& text, const std::vector<std::pair<size_t, size_t>>& learned) const;
  /// Tokenizes any other text. Adds BOS if the model has it and the text does not begin with it. Adds an end token,
  /// which is learned, if the text does not end with one.
  EncodedText plain(const std::string& text, const std::vector<std::pair<size_t, size_t>>& learned) const;
  /// Returns the prompt for an answer to the last message. Throws Error if the model has no chat template, or the
  /// template rejects the chat.
  std::vector<int64_t> prompt(const Chat& chat, const TemplateSettings& settings = {}) const;

  const Tokenizer& tokenizer() const { return tokenizer_; }
  /// nullptr if the model has none.
  const ChatTemplate* chat_template() const { return chat_template_ ? &*chat_template_ : nullptr; }
  /// The token that texts begin with, if the model has one.
  std::optional<int64_t> bos() const { return bos_; }
  /// The tokens that end an answer.
  const std::vector<int64_t>& end_tokens() const { return ends_; }

 private:
  Tokenizer tokenizer_;
  std::optional<int64_t> bos_;
  std::vector<int64_t> ends_;
  std::optional<ChatTemplate> chat_template_;
};

}  // namespace mft
