#include "runtime/data/encode_row.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/base/error.h"

namespace mft {
namespace {

constexpr int32_t kNoLoss = -100;

EncodedText encode(const LearnedText& side, const BundleText& text) {
  return side.rendered ? text.rendered(side.text, side.learned) : text.plain(side.text, side.learned);
}

/// Returns up to `places` positions from token `begin` on.
EncodedRow places_of(const EncodedText& row, size_t begin, size_t places) {
  EncodedRow cut;
  const size_t end = std::min(begin + places, row.tokens.empty() ? 0 : row.tokens.size() - 1);
  for (size_t i = begin; i < end; ++i) {
    cut.tokens.push_back(static_cast<int32_t>(row.tokens[i]));
    cut.targets.push_back(row.learned[i + 1] ? static_cast<int32_t>(row.tokens[i + 1]) : kNoLoss);
  }
  return cut;
}

bool teaches(const EncodedRow& row) {
  return std::any_of(row.targets.begin(), row.targets.end(), [](int32_t target) { return target != kNoLoss; });
}

/// Adds the group if each of its rows has something to learn.
void keep(RowGroup group, EncodedRows& rows) {
  if (std::all_of(group.begin(), group.end(), teaches)) rows.groups.push_back(std::move(group));
}

/// Splits a text into pieces. If the model has BOS, each begins with it, in place of the last token of the one before.
void windows(const EncodedText& row, size_t places, std::optional<int64_t> bos, EncodedRows& rows) {
  for (size_t begin = 0; begin + 1 < row.tokens.size(); begin += places) {
    EncodedRow piece = places_of(row, begin, places);
    if (bos) piece.tokens[0] = static_cast<int32_t>(*bos);
    keep({std::move(piece)}, rows);
  }
}

/// Cuts an answer, or the two of a pair, which stay together.
void cut(const std::vector<EncodedText>& sides, size_t places, EncodedRows& rows) {
  RowGroup group;
  bool truncated = false;
  for (const EncodedText& side : sides) {
    group.push_back(places_of(side, 0, places));
    truncated |= side.tokens.size() > places + 1;
  }
  const size_t before = rows.groups.size();
  keep(std::move(group), rows);
  rows.truncated |= truncated && rows.groups.size() > before;
}

/// Throws Error if the loss does not learn from such a row.
void check_loss(const Row& row, Loss loss) {
  if (loss == Loss::kSft && row.preference()) {
    fail("the row is a preference, with \"chosen\" and \"rejected\"; use loss dpo");
  }
  if (loss == Loss::kSft && row.label) {
    fail("the row has a \"label\"; use loss kto, or keep the rows whose label is true, without it, and use loss sft");
  }
  if (learns_from_pairs(loss) && !row.preference()) {
    fail("the row is not a preference; loss ", name_of(loss),
         " requires \"prompt\", \"chosen\" and \"rejected\"; use loss ", row.label ? "kto" : "sft");
  }
  if (loss == Loss::kKto && !row.preference() && !row.label) {
    fail("the row has no \"label\"; loss kto requires true or false beside a prompt and its answer, or a preference");
  }
}

}  // namespace

EncodedRows encode_row(const Row& row, const BundleText& text, const ChatTemplate* chat_template, int64_t seq_len,
                       Loss loss, const DataConfig& config) {
  check_loss(row, loss);
  const auto places = static_cast<size_t>(learns_from_pairs(loss) ? seq_len / 2 : seq_len);
  if (places < 1) fail("seq_len ", seq_len, " is too short for a row; raise it");
  const RowText rendered = row_text(row, chat_template, config);
  std::vector<EncodedText> sides;
  for (const LearnedText& side : rendered.sides) sides.push_back(encode(side, text));
  EncodedRows rows;
  rows.weight = row.weight;
  if (!(row.weight > 0)) return rows;
  if (rendered.plain) {
    windows(sides[0], places, text.bos(), rows);
    return rows;
  }
  if (loss != Loss::kKto) {
    cut(sides, places, rows);
    return rows;
  }
  for (const bool liked : {true, false}) {
    if (row.label.value_or(liked) != liked) continue;
    const size_t before = rows.groups.size();
    cut({sides[row.preference() && !liked]}, places, rows);
    if (rows.groups.size() > before) rows.groups.back()[0].liked = liked;
  }
  return rows;
}

}  // namespace mft
