#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/text/chat_template.h"

namespace mft {

/// A chat, the messages whose answers are learned, and those that are never learned.
struct ChatRow {
  Chat chat;
  std::vector<bool> learned, masked;
};

/// A prompt and its completion, which is learned.
struct PairRow {
  std::string prompt, completion;
  Chat chat;  // variables of the chat template, without messages
};

/// Plain text, which is learned completely.
struct TextRow {
  std::string text;
};

using AnswerRow = std::variant<ChatRow, PairRow>;

/// Two continuations of the same prompt, of which the first is preferred.
struct PreferenceRow {
  AnswerRow chosen, rejected;
};

/// A row of training data, in any of the forms of docs/reference/data.md.
struct Row {
  std::variant<ChatRow, PairRow, TextRow, PreferenceRow> content;
  float weight = 1;                // weight of its loss, at least 0
  std::string form;                // "chat messages", "Alpaca instructions", ...
  std::optional<bool> label = {};  // whether the answer is liked, if the row says so

  bool preference() const { return std::holds_alternative<PreferenceRow>(content); }
};

/// Custom names of columns; empty: the usual names.
struct RowKeys {
  std::string messages, prompt, completion;
};

/// Parses a row from one line of JSON. Throws Error with the reason and the valid form.
Row parse_row(std::string_view json, const RowKeys& keys = {});

/// Parses a chat to be answered: "messages", and optionally "tools", "documents" and "chat_template_kwargs".
Chat parse_chat(std::string_view json);

}  // namespace mft
