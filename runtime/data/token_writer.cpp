#include "runtime/data/token_writer.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "runtime/base/safetensors.h"
#include "runtime/data/packing.h"

namespace mft {

void Encoded::add(std::vector<RowGroup> more, float weight) {
  for (RowGroup& group : more) {
    groups.push_back(std::move(group));
    weights.push_back(weight);
  }
}

std::vector<std::vector<int64_t>> packed(const Encoded& encoded, const TrainConfig& config) {
  std::vector<int64_t> lengths;
  for (const RowGroup& group : encoded.groups) {
    int64_t places = 0;
    for (const EncodedRow& row : group) places += static_cast<int64_t>(row.tokens.size());
    lengths.push_back(places);
  }
  return pack(lengths, config.seq_len, static_cast<uint64_t>(config.seed));
}

std::vector<std::vector<int64_t>> apart(const Encoded& encoded) {
  std::vector<std::vector<int64_t>> sequences;
  for (size_t i = 0; i < encoded.groups.size(); ++i) sequences.push_back({static_cast<int64_t>(i)});
  return sequences;
}

TokenCounts write_token_file(const std::string& path, const Encoded& encoded,
                             const std::vector<std::vector<int64_t>>& sequences, Loss loss) {
  size_t total = 0;
  for (const RowGroup& group : encoded.groups) {
    for (const EncodedRow& row : group) total += row.tokens.size();
  }
  std::vector<int32_t> tokens, targets, positions;
  std::vector<float> weights;
  std::vector<uint8_t> labels;
  for (auto* values : {&tokens, &targets, &positions}) values->reserve(total);
  std::vector<int64_t> offsets = {0};
  for (const std::vector<int64_t>& sequence : sequences) {
    for (const int64_t index : sequence) {
      for (const EncodedRow& row : encoded.groups[static_cast<size_t>(index)]) {
        tokens.insert(tokens.end(), row.tokens.begin(), row.tokens.end());
        targets.insert(targets.end(), row.targets.begin(), row.targets.end());
        const size_t start = positions.size();
        positions.resize(tokens.size());
        std::iota(positions.begin() + static_cast<std::ptrdiff_t>(start), positions.end(), 0);
        weights.resize(tokens.size(), encoded.weights[static_cast<size_t>(index)]);
        labels.resize(tokens.size(), row.liked);
      }
    }
    offsets.push_back(static_cast<int64_t>(tokens.size()));
  }
  const auto count = static_cast<int64_t>(tokens.size());
  // The tensor with the largest items is first, so that all are aligned.
  std::vector<NamedTensor> tensors = {{"offsets", "I64", {static_cast<int64_t>(offsets.size())}, offsets.data()},
                                      {"tokens", "I32", {count}, tokens.data()},
                                      {"targets", "I32", {count}, targets.data()},
                                      {"positions", "I32", {count}, positions.data()}};
  const bool weighted = std::any_of(weights.begin(), weights.end(), [](float weight) { return weight != 1; });
  if (weighted) tensors.push_back({"weights", "F32", {count}, weights.data()});
  std::map<std::string, std::string> metadata;
  if (learns_from_pairs(loss)) metadata["rows"] = "pairs";
  if (loss == Loss::kKto) {
    metadata["rows"] = "labels";
    tensors.push_back({"labels", "U8", {count}, labels.data()});
  }
  write_safetensors(path, tensors, metadata);
  return {static_cast<int64_t>(sequences.size()), count,
          std::count_if(targets.begin(), targets.end(), [](int32_t target) { return target >= 0; })};
}

}  // namespace mft
