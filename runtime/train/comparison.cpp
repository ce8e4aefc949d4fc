#include "runtime/train/comparison.h"

#include <algorithm>

#include "runtime/train/evaluate.h"

namespace mft {
namespace {

/// While it lives, the model computes without its adapter.
struct WithoutAdapter {
  explicit WithoutAdapter(Model& of) : model(of) { model.use_adapter(false); }
  ~WithoutAdapter() { model.use_adapter(true); }
  WithoutAdapter(const WithoutAdapter&) = delete;
  WithoutAdapter& operator=(const WithoutAdapter&) = delete;

  Model& model;
};

/// The positions [begin, end) of a batch, without labels and weights.
Batch part_of(const Batch& batch, int64_t begin, int64_t end) {
  const auto of = [&](const std::vector<int64_t>& values) {
    return std::vector<int64_t>(values.begin() + begin, values.begin() + end);
  };
  Batch part;
  part.tokens = of(batch.tokens);
  part.targets = of(batch.targets);
  part.positions = of(batch.positions);
  return part;
}

/// Where a row's prompt ends: at its first target, or its last position if it has none.
struct Place {
  size_t begin, first_target, end;
};

std::vector<Place> places_of(const Batch& batch) {
  std::vector<Place> rows;
  for (const RowLoss& row : rows_of(batch, std::vector<float>(batch.tokens.size()))) {
    size_t first = row.begin;
    while (first + 1 < row.end && batch.targets[first] < 0) ++first;
    rows.push_back({row.begin, first, row.end});
  }
  return rows;
}

std::vector<double> row_losses(Model& model, const Batch& batch, float* x, float* y) {
  std::vector<float> losses;
  token_losses(model, batch, x, y, losses);
  std::vector<double> sums;
  for (const RowLoss& row : rows_of(batch, losses)) sums.push_back(row.loss);
  return sums;
}

}  // namespace

ReferenceCache::ReferenceCache(const std::string& folder, const TokenFile& data)
    : data_(data.sha256()), begins_(data.offsets()), known_(static_cast<size_t>(data.sequences())) {
  file_ = OffloadFile(folder, offset(data.sequences()));
}

uint64_t ReferenceCache::offset(int64_t sequence) const {
  return static_cast<uint64_t>(begins_[static_cast<size_t>(sequence)]) * sizeof(ReferenceLoss);
}

bool ReferenceCache::read(int64_t sequence, std::vector<ReferenceLoss>& rows) const {
  if (!known_[static_cast<size_t>(sequence)]) return false;
  file_.read(offset(sequence), rows.data(), rows.size() * sizeof(ReferenceLoss));
  return true;
}

void ReferenceCache::write(int64_t sequence, const std::vector<ReferenceLoss>& rows) {
  file_.write(offset(sequence), rows.data(), rows.size() * sizeof(ReferenceLoss));
  known_[static_cast<size_t>(sequence)] = true;
}

Batch mismatched(const Batch& sequence, const Batch& other, int64_t most) {
  const std::vector<Place> rows = places_of(sequence);
  const bool alone = rows.size() == 1;
  const Batch& answers = alone ? other : sequence;
  const std::vector<Place> answered = alone ? places_of(other) : rows;
  Batch mixed;
  if (answered.empty()) return mixed;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Place& row = rows[i];
    const Place& answer = alone ? answered[0] : answered[(i + rows.size() - 1) % rows.size()];
    const auto append = [](std::vector<int64_t>& to, const std::vector<int64_t>& from, size_t begin, size_t end) {
      to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(begin),
                from.begin() + static_cast<std::ptrdiff_t>(end));
    };
    const size_t start = mixed.tokens.size();
    append(mixed.tokens, sequence.tokens, row.begin, row.first_target + 1);
    append(mixed.tokens, answers.tokens, answer.first_target + 1, answer.end);
    append(mixed.targets, sequence.targets, row.begin, row.first_target);
    append(mixed.targets, answers.targets, answer.first_target, answer.end);
    for (size_t p = start; p < mixed.tokens.size(); ++p) mixed.positions.push_back(static_cast<int64_t>(p - start));
  }
  const size_t kept = std::min(mixed.tokens.size(), static_cast<size_t>(most));
  for (auto* values : {&mixed.tokens, &mixed.targets, &mixed.positions}) values->resize(kept);
  return mixed;
}

Comparison compare(Model& model, const Batch& batch, Loss loss, const TokenFile* data, ReferenceCache* cache, float* x,
                   float* y) {
  Comparison compared;
  if (!needs_reference(loss)) return compared;
  std::vector<Batch::Sequence> sequences = batch.sequences;
  if (sequences.empty()) sequences.push_back({-1, 0});
  double kl = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const int64_t index = sequences[s].index;
    const int64_t end = s + 1 < sequences.size() ? sequences[s + 1].begin : batch.size();
    const Batch sequence = part_of(batch, sequences[s].begin, end);
    Batch mixed;
    if (loss == Loss::kKto) {
      Batch next;
      if (data != nullptr && data->sequences() > 1) data->append((index + 1) % data->sequences(), next);
      mixed = mismatched(sequence, next, data != nullptr ? data->longest() : batch.size());
    }
    std::vector<ReferenceLoss> known(
        static_cast<size_t>(std::count(sequence.positions.begin(), sequence.positions.end(), 0)));
    if (cache == nullptr || index < 0 || !cache->read(index, known)) {
      const WithoutAdapter reference(model);
      const std::vector<double> rows = row_losses(model, sequence, x, y);
      const std::vector<double> others =
          mixed.size() > 0 ? row_losses(model, mixed, x, y) : std::vector<double>(rows.size());
      for (size_t i = 0; i < known.size(); ++i) known[i] = {rows[i], others[i]};
      if (cache != nullptr && index >= 0) cache->write(index, known);
    }
    for (const ReferenceLoss& row : known) compared.reference.push_back(row.row);
    if (mixed.size() == 0) continue;
    const std::vector<double> others = row_losses(model, mixed, x, y);
    for (size_t i = 0; i < known.size(); ++i) kl += known[i].mismatched - others[i];
  }
  compared.kl = std::max(0.0, kl / static_cast<double>(compared.reference.size()));
  return compared;
}

}  // namespace mft
