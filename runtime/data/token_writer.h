#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/train_config.h"
#include "runtime/data/encode_row.h"

namespace mft {

/// Encoded row groups, each with the weight of its row.
struct Encoded {
  std::vector<RowGroup> groups;
  std::vector<float> weights;

  void add(std::vector<RowGroup> more, float weight);
};

/// Sizes of a token file.
struct TokenCounts {
  int64_t sequences, tokens, targets;
};

/// The groups' sequences: packed and shuffled by `config.seed`, or each group alone and in order.
std::vector<std::vector<int64_t>> packed(const Encoded& encoded, const TrainConfig& config);
std::vector<std::vector<int64_t>> apart(const Encoded& encoded);

/// Writes a token file (docs/reference/bundle_format.md) of groups in these sequences, for the configured loss.
TokenCounts write_token_file(const std::string& path, const Encoded& encoded,
                             const std::vector<std::vector<int64_t>>& sequences, Loss loss);

}  // namespace mft
