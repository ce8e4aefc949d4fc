#pragma once

#include <cstdint>
#include <vector>

#include "runtime/config/train_config.h"
#include "runtime/data/row_text.h"
#include "runtime/text/bundle_text.h"

namespace mft {

/// A row of L tokens as L - 1 positions: the input token, and the target, which is -100 for positions without loss.
struct EncodedRow {
  std::vector<int32_t> tokens, targets;
  bool liked = true;  // its label, for loss kto
};

/// Rows that must be in the same sequence: one row, or the chosen and the rejected row of a pair.
using RowGroup = std::vector<EncodedRow>;

/// An encoded row of training data.
struct EncodedRows {
  std::vector<RowGroup> groups;  // several for a long text; none if nothing to learn remained
  bool truncated = false;        // whether the row was cut at the end
  float weight = 1;              // of its loss
};

/// Encodes a row. Each group has 1 to `seq_len` positions, and each row of a pair at most half. Loss kto takes a
/// preference as a liked and a disliked row, as TRL does. Long texts are split into windows that overlap by one token,
/// so that every token is predicted once. Other long rows are cut at the end. `chat_template` is the bundle's with the
/// run's settings, or nullptr if it has none. Throws Error if the row cannot be used with the model or the loss.
EncodedRows encode_row(const Row& row, const BundleText& text, const ChatTemplate* chat_template, int64_t seq_len,
                       Loss loss, const DataConfig& config);

}  // namespace mft
