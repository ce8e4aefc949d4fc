#pragma once

#include <cstdint>
#include <vector>

#include "runtime/config/train_config.h"
#include "runtime/data/row_text.h"
#include "runtime/text/bundle_text.h"

namespace mft {

/// A row of L tokens as L - 1 places: what is read there, and what to predict, or -100 where nothing is learned.
struct EncodedRow {
  std::vector<int32_t> tokens, targets;
};

/// Rows that stay in one sequence: one, or the chosen and the rejected one of a preference.
using RowGroup = std::vector<EncodedRow>;

/// What a row of training data becomes.
struct EncodedRows {
  std::vector<RowGroup> groups;  // several of a long text; none where nothing to learn remained
  bool truncated = false;        // whether the row lost its end
};

/// Each group has 1 to `seq_len` places, each side of a preference up to half as many. Long texts are cut into windows
/// that overlap by one token, so that every token is predicted once; other long rows lose their end. `chat_template` is
/// the bundle's with the run's settings, nullptr where it has none. Throws Error where the row suits the model or the
/// loss not.
EncodedRows encode_row(const Row& row, const BundleText& text, const ChatTemplate* chat_template, int64_t seq_len,
                       Loss loss, const DataConfig& config);

}  // namespace mft
