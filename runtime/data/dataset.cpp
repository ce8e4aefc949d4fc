#include "runtime/data/dataset.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/safetensors.h"
#include "runtime/data/encode_row.h"
#include "runtime/data/line_file.h"
#include "runtime/data/packing.h"

namespace mft {
namespace {

RowKeys keys_of(const DataConfig& config) { return {config.messages_key, config.prompt_key, config.completion_key}; }

/// The bundle's chat template with the run's settings, if it has one.
std::optional<ChatTemplate> template_of(const BundleText& text, const DataConfig& config) {
  if (text.chat_template() == nullptr) return std::nullopt;
  return text.chat_template()->with({config.chat_template_kwargs, config.chat_template_date});
}

/// Runs `body`, and adds the file and the line to its errors.
template <typename Body>
auto naming(const std::string& path, int64_t line, const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    fail(path, ":", line, ": ", error.what());
  }
}

/// Removes the line ends between JSON values. Line ends within strings are escaped.
std::string on_one_line(std::string json) {
  std::replace_if(json.begin(), json.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return json;
}

/// Encoded row groups, each with the weight of its row.
struct Encoded {
  std::vector<RowGroup> groups;
  std::vector<float> weights;
};

int64_t places_of(const RowGroup& group) {
  int64_t places = 0;
  for (const EncodedRow& row : group) places += static_cast<int64_t>(row.tokens.size());
  return places;
}

/// Writes a token file (docs/reference/bundle_format.md) and returns its statistics.
DataStats write_packed(const std::string& path, const Encoded& encoded, const TrainConfig& config) {
  std::vector<int64_t> lengths;
  for (const RowGroup& group : encoded.groups) lengths.push_back(places_of(group));
  const auto sequences = pack(lengths, config.seq_len, static_cast<uint64_t>(config.seed));

  const auto total = static_cast<size_t>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
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
  const auto count = static_cast<int64_t>(total);
  // The tensor with the largest items is first, so that all are aligned.
  std::vector<NamedTensor> tensors = {{"offsets", "I64", {static_cast<int64_t>(offsets.size())}, offsets.data()},
                                      {"tokens", "I32", {count}, tokens.data()},
                                      {"targets", "I32", {count}, targets.data()},
                                      {"positions", "I32", {count}, positions.data()}};
  const bool weighted = std::any_of(weights.begin(), weights.end(), [](float weight) { return weight != 1; });
  if (weighted) tensors.push_back({"weights", "F32", {count}, weights.data()});
  std::map<std::string, std::string> metadata;
  if (learns_from_pairs(config.loss)) metadata["rows"] = "pairs";
  if (config.loss == Loss::kKto) {
    metadata["rows"] = "labels";
    tensors.push_back({"labels", "U8", {count}, labels.data()});
  }
  write_safetensors(path, tensors, metadata);

  DataStats stats;
  stats.sequences = static_cast<int64_t>(sequences.size());
  stats.tokens = count;
  stats.target_tokens = std::count_if(targets.begin(), targets.end(), [](int32_t target) { return target >= 0; });
  return stats;
}

/// The loss that a row is for.
Loss loss_for(const Row& row) { return row.preference() ? Loss::kDpo : row.label ? Loss::kKto : Loss::kSft; }

const char* kind_for(Loss loss) {
  return loss == Loss::kDpo ? "a preference" : loss == Loss::kKto ? "an answer with a label" : "a text or a chat";
}

const char* kinds_for(Loss loss) {
  return loss == Loss::kDpo ? "preferences" : loss == Loss::kKto ? "answers with labels" : "texts or chats";
}

}  // namespace

Dataset::Dataset(const std::string& bundle, std::string path) : Dataset(BundleText(Bundle(bundle)), std::move(path)) {}

Dataset::Dataset(BundleText text, std::string path) : text_(std::move(text)), path_(std::move(path)) {
  if (file_exists(path_)) for_each_line(path_, [&](int64_t, std::string_view) { ++rows_; });
}

void Dataset::add(const std::string& given) {
  const Row row = parse_row(given);
  const Loss loss = loss_for(row);
  encode_row(row, text_, text_.chat_template(), INT32_MAX, loss, {});  // throws if the row cannot be used
  int64_t before = 0;                                                  // other processes may have added rows
  append_line(path_, on_one_line(given), [&](int64_t number, std::string_view line) {
    if (++before > 1) return;
    const Loss others = naming(path_, number, [&] { return loss_for(parse_row(line)); });
    if (others != loss)
      fail(path_, ": this row is ", kind_for(loss), ", but the rows before it are ", kinds_for(others));
  });
  rows_ = before + 1;
}

DataStats Dataset::write_tokens(const std::string& tokens, const TrainConfig& config) const {
  if (config.seed < 0) fail("seed ", config.seed, ": must not be negative");  // as in `mobile-ft train`
  Encoded encoded;
  int64_t rows = 0, truncated = 0, dropped = 0;
  std::error_code none;
  if (std::filesystem::equivalent(tokens, path_, none))
    fail(path_, ": is the file with the rows; choose another file for the tokens");
  const std::optional<ChatTemplate> chat_template = template_of(text_, config.data);
  const RowKeys keys = keys_of(config.data);
  int64_t bad = 0;
  const auto take = [&](int64_t number, std::string_view line) {
    ++rows;
    Row row;
    EncodedRows found;
    try {
      row = naming(path_, number, [&] { return parse_row(line, keys); });
      found = naming(path_, number, [&] {
        return encode_row(row, text_, chat_template ? &*chat_template : nullptr, config.seq_len, config.loss,
                          config.data);
      });
    } catch (const Error&) {
      if (config.data.on_bad_row == OnBadRow::kError) throw;
      ++bad;
      return;
    }
    truncated += found.truncated;
    dropped += found.groups.empty();
    for (RowGroup& group : found.groups) {
      encoded.groups.push_back(std::move(group));
      encoded.weights.push_back(row.weight);
    }
  };
  if (file_exists(path_)) for_each_line(path_, take);
  if (rows == 0) fail(path_, ": is empty; it must have one JSON object per line");
  if (encoded.groups.empty()) {
    fail(path_, ": no tokens to train on within seq_len ", config.seq_len,
         learns_from_pairs(config.loss) ? " (half of it for each answer)" : "",
         "; raise seq_len so that it reaches the completions, or remove rows that are empty or have weight 0");
  }
  DataStats stats = write_packed(tokens, encoded, config);
  stats.rows = rows;
  stats.truncated = truncated;
  stats.dropped = dropped;
  stats.bad = bad;
  return stats;
}

}  // namespace mft
