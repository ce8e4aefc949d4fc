#include "runtime/data/encode_row.h"

#include <algorithm>

#include "runtime/core/error.h"

namespace mft {
namespace {

constexpr int32_t kNoLoss = -100;

EncodedText encode(const ChatRow& row, const BundleText& text) { return text.chat(row.messages, row.learned_from); }
EncodedText encode(const PairRow& row, const BundleText& text) { return text.pair(row.prompt, row.completion); }
EncodedText encode(const AnswerRow& row, const BundleText& text) {
  return std::visit([&](const auto& answer) { return encode(answer, text); }, row);
}

/// Up to `places` places from token `begin` on.
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

/// Adds the group where there is something to learn from each of its rows.
void keep(RowGroup group, EncodedRows& rows) {
  if (std::all_of(group.begin(), group.end(), teaches)) rows.groups.push_back(std::move(group));
}

EncodedRows windows(const EncodedText& row, size_t places) {
  EncodedRows rows;
  for (size_t begin = 0; begin + 1 < row.tokens.size(); begin += places) {
    keep({places_of(row, begin, places)}, rows);
  }
  return rows;
}

EncodedRows cut(const std::vector<EncodedText>& sides, size_t places) {
  EncodedRows rows;
  RowGroup group;
  for (const EncodedText& side : sides) {
    group.push_back(places_of(side, 0, places));
    rows.truncated |= side.tokens.size() > places + 1;
  }
  keep(std::move(group), rows);
  rows.truncated &= !rows.groups.empty();
  return rows;
}

}  // namespace

EncodedRows encode_row(const Row& row, const BundleText& text, int64_t seq_len, Loss loss) {
  if (row.preference() && loss == Loss::kSft) {
    fail("a preference, with \"chosen\" and \"rejected\"; --loss dpo learns from these");
  }
  if (!row.preference() && loss == Loss::kDpo) {
    fail("--loss dpo needs rows with \"prompt\", \"chosen\" and \"rejected\"; use --loss sft");
  }
  const auto places = static_cast<size_t>(loss == Loss::kDpo ? seq_len / 2 : seq_len);
  if (places < 1) fail("--seq-len ", seq_len, ": too short for a row");
  EncodedRows rows;
  if (const auto* plain = std::get_if<TextRow>(&row.content)) {
    rows = windows(text.text(plain->text), places);
  } else if (const auto* preference = std::get_if<PreferenceRow>(&row.content)) {
    rows = cut({encode(preference->chosen, text), encode(preference->rejected, text)}, places);
  } else if (const auto* chat = std::get_if<ChatRow>(&row.content)) {
    rows = cut({encode(*chat, text)}, places);
  } else {
    rows = cut({encode(std::get<PairRow>(row.content), text)}, places);
  }
  return row.weight > 0 ? rows : EncodedRows{};
}

}  // namespace mft
