#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/text/chat_template.h"

namespace mft {

/// A chat, and of which of its messages the answers are learned.
struct ChatRow {
  Chat chat;
  std::vector<bool> learned;
};

/// A prompt and what should follow, which is learned.
struct PairRow {
  std::string prompt, completion;
  Chat chat;  // without messages: what else the row says to a chat template
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

/// A row of training data, in any of the forms of docs/reference/data.md.
struct Row {
  std::variant<ChatRow, PairRow, TextRow, PreferenceRow> content;
  float weight = 1;  // of its loss, 0 or more
  std::string form;  // "chat messages", "Alpaca instructions", ...

  bool preference() const { return std::holds_alternative<PreferenceRow>(content); }
};

/// Names of the columns of data that has its own; empty: the usual names.
struct RowKeys {
  std::string messages, prompt, completion;
};

/// The row that one line of JSON holds. Throws Error that says what is wrong with it, and what would be right.
Row parse_row(std::string_view json, const RowKeys& keys = {});

/// A chat to be answered: "messages", and "tools", "documents" and "chat_template_kwargs" if they are there.
Chat parse_chat(std::string_view json);

}  // namespace mft
