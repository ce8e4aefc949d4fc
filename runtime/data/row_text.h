#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/config/data_config.h"
#include "runtime/data/row.h"
#include "runtime/text/chat_template.h"

namespace mft {

/// The text of a row, or of a side of a preference, and which bytes [begin, end) of it are learned.
struct LearnedText {
  std::string text;
  std::vector<std::pair<size_t, size_t>> learned;
  bool rendered = false;  // by a chat template, which writes BOS and ends itself
};

/// A row as text: one, or the chosen and the rejected one of a preference.
struct RowText {
  std::vector<LearnedText> sides;
  bool plain = false;  // text, which is learned whole and in windows
  float weight = 1;
  std::string form;
};

/// Puts a row's chats into the model's chat template; nullptr: it has none. Throws Error where the template refuses
/// them, or the row needs one.
RowText row_text(const Row& row, const ChatTemplate* chat_template, const DataConfig& config);

}  // namespace mft
