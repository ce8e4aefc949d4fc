#include "runtime/bundle/token_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/base/random.h"

namespace mft {
namespace {

constexpr int32_t kIgnore = -100;

}  // namespace

void Batch::clear() {
  tokens.clear();
  targets.clear();
  positions.clear();
  weights.clear();
  liked.clear();
  sequences.clear();
  target_count = 0;
}

TokenFile::TokenFile(const std::string& path, int64_t vocab_size) : file_(path) {
  const auto& tokens = file_.get("tokens", "I32");
  const auto& targets = file_.get("targets", "I32");
  const auto& positions = file_.get("positions", "I32");
  const auto& offsets = file_.get("offsets", "I64");
  const int64_t count = static_cast<int64_t>(tokens.bytes / sizeof(int32_t));
  for (const SafeTensors::View* view : {&tokens, &targets, &positions}) {
    if (view->bytes != tokens.bytes) fail(path, ": tokens, targets and positions must have the same length");
    if (reinterpret_cast<uintptr_t>(view->data) % alignof(int32_t) != 0) {
      fail(path, ": tokens, targets and positions must be aligned to 4 bytes in the file");
    }
  }
  tokens_ = reinterpret_cast<const int32_t*>(tokens.data);
  targets_ = reinterpret_cast<const int32_t*>(targets.data);
  positions_ = reinterpret_cast<const int32_t*>(positions.data);
  offsets_.resize(offsets.bytes / sizeof(int64_t));
  if (!offsets_.empty()) std::memcpy(offsets_.data(), offsets.data, offsets.bytes);
  if (offsets_.size() < 2 || offsets_.front() != 0 || offsets_.back() != count) {
    fail(path, ": offsets must run from 0 to the number of tokens, ", count, ", over at least one sequence");
  }
  for (size_t s = 0; s + 1 < offsets_.size(); ++s) {
    if (offsets_[s + 1] <= offsets_[s] ||
        offsets_[s + 1] > count) {  // checked before the difference is computed, which could overflow
      fail(path, ": sequence ", s, " is empty or out of order");
    }
    longest_ = std::max(longest_, offsets_[s + 1] - offsets_[s]);
    for (int64_t i = offsets_[s]; i < offsets_[s + 1]; ++i) {
      const bool target_ok = targets_[i] == kIgnore || (targets_[i] >= 0 && targets_[i] < vocab_size);
      if (tokens_[i] < 0 || tokens_[i] >= vocab_size || !target_ok) {
        fail(path, ": token ", i, " is not in the model's vocabulary of ", vocab_size);
      }
      // Positions of a row start at 0 and count up, so that attention never reads before its sequence.
      const bool starts = positions_[i] == 0;
      const bool goes_on = i > offsets_[s] && positions_[i] == positions_[i - 1] + 1;
      targets_count_ += targets_[i] != kIgnore;
      if (!starts && !goes_on) fail(path, ": position ", positions_[i], " at token ", i, " does not follow its row");
    }
  }
  if (file_.has("weights")) read_weights(count);
  read_rows(count);
  sha256_ = sha256_of_file(path, file_size(path));
  drop();  // a step needs only a few hundred of the checked tokens
}

void TokenFile::read_weights(int64_t count) {
  const auto& view = file_.get("weights", "F32");
  if (view.bytes != static_cast<size_t>(count) * sizeof(float) ||
      reinterpret_cast<uintptr_t>(view.data) % alignof(float) != 0) {
    fail(path(), ": weights must have the length of tokens and be aligned to 4 bytes in the file");
  }
  weights_ = reinterpret_cast<const float*>(view.data);
  for (int64_t i = 0; i < count; ++i) {
    if (!(weights_[i] >= 0) || !std::isfinite(weights_[i])) {
      fail(path(), ": weight ", weights_[i], " of token ", i, "; must be finite and not negative");
    }
  }
}

void TokenFile::read_rows(int64_t count) {
  const auto rows = file_.metadata().find("rows");
  if (rows == file_.metadata().end()) return;
  if (rows->second == "pairs") {
    rows_ = RowKind::kPairs;
    check_pairs();
  } else if (rows->second == "labels") {
    rows_ = RowKind::kLabels;
    const auto& view = file_.get("labels", "U8");
    if (view.bytes != static_cast<size_t>(count)) fail(path(), ": labels must have the length of tokens");
    labels_ = reinterpret_cast<const uint8_t*>(view.data);
    for (int64_t i = 0; i < count; ++i) {
      if (labels_[i] > 1) fail(path(), ": label ", int{labels_[i]}, " of token ", i, "; must be 0 or 1");
      if (positions_[i] != 0 && labels_[i] != labels_[i - 1]) {
        fail(path(), ": the label changes at token ", i, ", within a row");
      }
    }
  } else {
    fail(path(), ": unknown kind of rows \"", rows->second, "\"; must be pairs or labels");
  }
}

void TokenFile::check_pairs() const {
  for (int64_t s = 0; s < sequences(); ++s) {
    const auto first = positions_ + offsets_[static_cast<size_t>(s)];
    const auto last = positions_ + offsets_[static_cast<size_t>(s) + 1];
    if (std::count(first, last, 0) % 2 != 0) {
      fail(path(), ": sequence ", s, " has an odd number of rows; rows must be pairs, chosen then rejected");
    }
  }
}

void TokenFile::append(int64_t index, Batch& batch) const {
  batch.sequences.push_back({index, batch.size()});
  for (int64_t i = offsets_[static_cast<size_t>(index)]; i < offsets_[static_cast<size_t>(index) + 1]; ++i) {
    batch.tokens.push_back(tokens_[i]);
    batch.targets.push_back(targets_[i]);
    batch.positions.push_back(positions_[i]);
    if (weights_ != nullptr) batch.weights.push_back(weights_[i]);
    if (labels_ != nullptr) batch.liked.push_back(labels_[i]);
    if (targets_[i] != kIgnore) ++batch.target_count;
  }
}

int64_t TokenOrder::at(int64_t i) {
  const int64_t epoch = i / sequences_;
  if (epoch != epoch_) {
    epoch_ = epoch;
    Random(seed_, static_cast<uint64_t>(epoch)).permute(sequences_, order_);
  }
  return order_[static_cast<size_t>(i % sequences_)];
}

}  // namespace mft
