#include "runtime/text/bundle_text.h"

#include "runtime/core/error.h"
#include "runtime/core/file.h"
#include "runtime/core/json.h"

namespace mft {
namespace {

constexpr int64_t kMostId = INT32_MAX;  // what a token file holds

/// Marks the tokens that stand for some of the bytes [begin, end).
void learn(const std::vector<TextToken>& tokens, size_t begin, size_t end, std::vector<bool>& learned) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].text.begin < end && tokens[i].text.end > begin) learned[i] = true;
  }
}

bool starts_with(const std::string& text, const std::string& with) { return text.compare(0, with.size(), with) == 0; }

int64_t token_of(const nlohmann::json& json) {
  if (!json.is_number_integer() || json < 0 || json > kMostId) fail(json.dump(), " is no token");
  return json.get<int64_t>();
}

}  // namespace

BundleText::BundleText(const std::string& tokenizer_json, const std::string& text_json) : tokenizer_(tokenizer_json) {
  try {
    const auto json = parse_json<nlohmann::json>(read_text(text_json, kMostJsonBytes), "not JSON");
    if (!json.at("bos").is_null()) begin_.push_back(token_of(json["bos"]));
    for (const auto& end : json.at("ends")) ends_.push_back(token_of(end));
    if (ends_.empty()) fail("names no token that ends a text");
    const auto& chat = json.at("chat");
    if (chat.is_object()) {
      chat_.emplace(chat);
    } else {
      no_chat_ = chat.is_null() ? "the model has no chat template; use prompt and completion, or text" : chat;
      has_template_ = !chat.is_null();
    }
  } catch (const nlohmann::json::exception& error) {
    fail(text_json, ": ", error.what());
  } catch (const Error& error) {
    fail(text_json, ": ", error.what());
  }
}

const ChatTable& BundleText::chat_table() const {
  if (!chat_) fail(no_chat_);
  return *chat_;
}

EncodedText BundleText::chat(const std::vector<Message>& messages, size_t learned_from) const {
  const std::string text = chat_table().render(messages, messages.size(), false);
  const std::vector<TextToken> tokens = tokenizer_.encode(text);
  EncodedText row;
  row.learned.resize(tokens.size());
  for (const TextToken& token : tokens) row.tokens.push_back(token.id);
  for (size_t i = learned_from; i < messages.size(); ++i) {
    if (messages[i].role != "assistant") continue;
    const std::string asked = chat_->render(messages, i, true), answered = chat_->render(messages, i + 1, false);
    if (!starts_with(text, answered) || !starts_with(answered, asked)) {
      fail("the model's chat template changes what comes before message ", i + 1,
           ", so where that answer starts is unknown; split the chat into rows that end with their only assistant "
           "message");
    }
    learn(tokens, asked.size(), answered.size(), row.learned);
  }
  return row;
}

EncodedText BundleText::pair(const std::string& prompt, const std::string& completion) const {
  if (has_template_) return chat({{"user", prompt}, {"assistant", completion}}, 1);
  // One text, not two, so that a completion's leading space joins its word as it does everywhere else.
  const std::vector<TextToken> tokens = tokenizer_.encode(prompt + completion);
  EncodedText row;
  row.learned.resize(tokens.size());
  learn(tokens, prompt.size(), prompt.size() + completion.size(), row.learned);
  row.tokens = begin_;
  row.learned.insert(row.learned.begin(), begin_.size(), false);
  for (const TextToken& token : tokens) row.tokens.push_back(token.id);
  row.tokens.push_back(ends_.front());
  row.learned.push_back(true);
  return row;
}

EncodedText BundleText::text(const std::string& text) const {
  EncodedText row;
  row.tokens = begin_;
  for (const TextToken& token : tokenizer_.encode(text)) row.tokens.push_back(token.id);
  row.tokens.push_back(ends_.front());
  row.learned.assign(row.tokens.size(), true);
  return row;
}

std::vector<int64_t> BundleText::prompt(const std::vector<Message>& messages) const {
  std::vector<int64_t> ids;
  for (const TextToken& token : tokenizer_.encode(chat_table().render(messages, messages.size(), true))) {
    ids.push_back(token.id);
  }
  return ids;
}

}  // namespace mft
