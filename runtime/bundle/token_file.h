#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/safetensors.h"

namespace mft {

/// The tokens of one call of the model: several concatenated sequences.
struct Batch {
  std::vector<int64_t> tokens;
  std::vector<int64_t> targets;    // -100: no loss there
  std::vector<int64_t> positions;  // 0 starts a row; rows do not see each other
  std::vector<float> weights;      // of each position's loss; empty: all 1
  std::vector<uint8_t> liked;      // whether each position is of an answer that is liked; empty: all are
  int64_t target_count = 0;        // positions with loss

  struct Sequence {
    int64_t index;  // index in its token file
    int64_t begin;  // its first position in the batch
  };
  std::vector<Sequence> sequences;  // empty if the tokens are not from a file

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  void clear();
};

/// What the rows of a token file are: texts, pairs of answers (chosen, then rejected), or answers with a label.
enum class RowKind { kTexts, kPairs, kLabels };

/// A token file (docs/reference/bundle_format.md), checked on opening.
class TokenFile {
 public:
  /// Throws Error, with the file's name, if a tensor is missing or a value is out of range.
  TokenFile(const std::string& path, int64_t vocab_size);

  int64_t sequences() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  int64_t longest() const { return longest_; }
  int64_t total_tokens() const { return offsets_.back(); }
  int64_t targets() const { return targets_count_; }
  /// The first token of each sequence, and the end of the last one.
  const std::vector<int64_t>& offsets() const { return offsets_; }
  /// Pairs are in one sequence.
  RowKind rows() const { return rows_; }

  /// Drops the file's pages from the process until they are read again.
  void drop() const { file_.drop(); }
  /// Adds sequence `index` to `batch`.
  void append(int64_t index, Batch& batch) const;

  /// SHA-256 of the whole file, which identifies the data in checkpoints.
  const std::string& sha256() const { return sha256_; }
  const std::string& path() const { return file_.path(); }

 private:
  void read_weights(int64_t count);
  void read_rows(int64_t count);
  void check_pairs() const;

  SafeTensors file_;
  const int32_t* tokens_;
  const int32_t* targets_;
  const int32_t* positions_;
  const float* weights_ = nullptr;   // nullptr if all are 1
  const uint8_t* labels_ = nullptr;  // nullptr without labels
  std::vector<int64_t> offsets_;
  int64_t longest_ = 0;
  int64_t targets_count_ = 0;
  RowKind rows_ = RowKind::kTexts;
  std::string sha256_;
};

/// An endless shuffled order of the sequences. Each epoch has every sequence once, in an order defined by (seed,
/// epoch).
class TokenOrder {
 public:
  TokenOrder(int64_t sequences, uint64_t seed) : sequences_(sequences), seed_(seed) {}

  int64_t sequences() const { return sequences_; }

  /// Returns the sequence at position `i` of the endless order.
  int64_t at(int64_t i);

 private:
  int64_t sequences_;
  uint64_t seed_;
  int64_t epoch_ = -1;
  std::vector<int64_t> order_;
};

}  // namespace mft
