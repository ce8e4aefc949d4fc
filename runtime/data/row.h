#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "runtime/text/chat_table.h"

namespace mft {

/// A chat; the assistant's messages from `learned_from` on are learned.
struct ChatRow {
  std::vector<Message> messages;
  size_t learned_from = 0;
};

/// A prompt and what should follow, which is learned.
struct PairRow {
  std::string prompt, completion;
};

/// Plain text, all of it learned.
struct TextRow {
  std::string text;
};

using AnswerRow = std::variant<ChatRow, PairRow>;

/// Two ways to go on after the same prompt, and the first should become the likelier one.
struct PreferenceRow {
  AnswerRow chosen, rejected;
};

/// A row of training data, as `mobile-ft train` takes them.
struct Row {
  std::variant<ChatRow, PairRow, TextRow, PreferenceRow> content;
  float weight = 1;  // of its loss, 0 or more

  bool preference() const { return std::holds_alternative<PreferenceRow>(content); }
};

/// Throws Error that says what is wrong with it, and what would be right.
Row parse_row(const nlohmann::json& row);

}  // namespace mft
