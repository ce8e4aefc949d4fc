#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/data_config.h"
#include "runtime/data/row.h"
#include "runtime/text/chat_template.h"

namespace mft {

/// The text of a row or of a side of a preference, and the bytes [begin, end) that are learned.
struct LearnedText {
  std::string text;
  std::vector<std::pair<size_t, size_t>> learned;
  bool rendered = false;  // by a chat template, which writes BOS and end tokens itself
};

/// A row as text: one text, or the chosen and the rejected text of a preference.
struct RowText {
  std::vector<LearnedText> sides;
  bool plain = false;  // plain text, which is learned completely, in windows
  float weight = 1;
  std::string form;
  std::optional<bool> label = {};
};

/// Renders a row's chats with the model's chat template (nullptr: it has none). Throws Error if the template rejects
/// them, or if the row requires a template.
RowText row_text(const Row& row, const ChatTemplate* chat_template, const DataConfig& config);

}  // namespace mft
