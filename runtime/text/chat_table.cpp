#include "runtime/text/chat_table.h"

#include <algorithm>

#include "runtime/core/error.h"
#include "runtime/text/unicode.h"

namespace mft {
namespace {

/// The role of message `i` of `count`, "first " before that of the first one; with "." of the last one and "+" of
/// others that no user's message comes behind.
std::string turn(const std::vector<Message>& messages, size_t count, size_t i) {
  const auto behind = messages.begin() + static_cast<ptrdiff_t>(i) + 1;
  const auto end = messages.begin() + static_cast<ptrdiff_t>(count);
  const bool later = std::any_of(behind, end, [](const Message& message) { return message.role == "user"; });
  return (i == 0 ? "first " : "") + messages[i].role + (later ? "" : behind != end ? "+" : ".");
}

/// What Python's str.strip takes off.
bool is_python_space(char32_t c) { return is_space(c) || (c >= 0x1c && c <= 0x1f); }

/// Whether `c` is among what is taken off: all spaces, or the characters listed.
bool is_among(char32_t c, const std::string& stripped) {
  if (stripped == "space") return is_python_space(c);
  for (size_t i = 0; i < stripped.size();) {
    if (character_at(stripped, i, i) == c) return true;
  }
  return false;
}

}  // namespace

ChatTable::ChatTable(const nlohmann::json& json)
    : gaps_(json.at("gaps").get<decltype(gaps_)>()),
      stripped_(json.at("stripped").get<decltype(stripped_)>()),
      refused_(json.at("refused").get<decltype(refused_)>()) {
  for (const auto& [turn, ends] : stripped_) {
    if (invalid_utf8(ends.first + ends.second) != std::string::npos) fail("what is stripped of ", turn, " is no UTF-8");
  }
}

std::string ChatTable::render(const std::vector<Message>& messages, size_t count, bool prompt) const {
  const auto end = messages.begin() + static_cast<ptrdiff_t>(count);
  if (std::none_of(messages.begin(), end, [](const Message& message) { return message.role == "user"; })) {
    fail("no message is a user's");
  }
  std::string text;
  for (size_t i = 0; i <= count; ++i) {
    const std::string before = i > 0 ? turn(messages, count, i - 1) : "";
    const std::string behind = i < count ? turn(messages, count, i) : prompt ? "prompt" : "end";
    const auto ends = stripped_.find(behind);
    const auto gap = gaps_.find(before + "|" + behind);
    if (gap == gaps_.end() || (i < count && ends == stripped_.end())) {
      fail("the model's chat template has no ", i < count ? messages[i].role : "end", " behind ",
           i > 0 ? messages[i - 1].role : "the beginning", " there");
    }
    text += gap->second;
    if (i < count) text += shown(messages[i], ends->second);
  }
  return text;
}

std::string ChatTable::shown(const Message& message, const std::pair<std::string, std::string>& ends) const {
  const std::string& content = message.content;
  const size_t invalid = invalid_utf8(content);
  if (invalid != std::string::npos) fail("a message is no UTF-8 from byte ", invalid, " on");
  for (const std::string& text : refused_) {
    if (content.find(text) != std::string::npos) {
      fail("the model's chat template treats ", text, " in a message apart");
    }
  }
  const size_t begin = skip(content, 0, [&](char32_t c) { return is_among(c, ends.first); });
  const size_t end = skip_back(content, content.size(), [&](char32_t c) { return is_among(c, ends.second); });
  return content.substr(begin, std::max(begin, end) - begin);
}

}  // namespace mft
