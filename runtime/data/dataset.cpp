#include "runtime/data/dataset.h"

#include <algorithm>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/data/encode_row.h"
#include "runtime/data/row_encoder.h"
#include "runtime/data/token_writer.h"

namespace mft {
namespace {

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

DataStats Dataset::write_tokens(const std::string& tokens, const TrainConfig& config, LinesOf writer) const {
  if (config.seed < 0) fail("seed ", config.seed, ": must not be negative");  // as in `mobile-ft train`
  Encoded encoded;
  int64_t rows = 0, truncated = 0, dropped = 0;
  std::error_code none;
  if (std::filesystem::equivalent(tokens, path_, none))
    fail(path_, ": is the file with the rows; choose another file for the tokens");
  const RowEncoder encoder(text_, config);
  int64_t bad = 0;
  const auto take = [&](int64_t number, std::string_view line) {
    ++rows;
    EncodedRows found;
    try {
      found = naming(path_, number, [&] { return encoder.encode(line); });
    } catch (const Error&) {
      if (config.data.on_bad_row == OnBadRow::kError) throw;
      ++bad;
      return;
    }
    truncated += found.truncated;
    dropped += found.groups.empty();
    encoded.add(std::move(found.groups), found.weight);
  };
  if (file_exists(path_)) for_each_line(path_, take, writer);
  if (rows == 0) fail(path_, ": is empty; it must have one JSON object per line");
  if (encoded.groups.empty()) {
    fail(path_, ": no tokens to train on within seq_len ", config.seq_len,
         learns_from_pairs(config.loss) ? " (half of it for each answer)" : "",
         "; raise seq_len so that it reaches the completions, or remove rows that are empty or have weight 0");
  }
  const TokenCounts counts = write_token_file(tokens, encoded, packed(encoded, config), config.loss);
  DataStats stats;
  stats.sequences = counts.sequences;
  stats.tokens = counts.tokens;
  stats.target_tokens = counts.targets;
  stats.rows = rows;
  stats.truncated = truncated;
  stats.dropped = dropped;
  stats.bad = bad;
  return stats;
}

}  // namespace mft
