#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/safetensors.h"

namespace mft {

/// Tokens of one call of the model: several sequences one after another.
struct Batch {
  std::vector<int64_t> tokens;
  std::vector<int64_t> targets;    // -100: no loss there
  std::vector<int64_t> positions;  // 0 starts a row; rows do not see each other
  std::vector<float> weights;      // of each place's loss; empty: all 1
  int64_t target_count = 0;        // places with loss

  struct Sequence {
    int64_t index;  // in its token file
    int64_t begin;  // its first place here
  };
  std::vector<Sequence> sequences;  // none where the tokens are of no file

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  void clear();
};

/// A token file (docs/reference/bundle_format.md), checked on opening.
class TokenFile {
 public:
  /// Throws Error naming the file where a tensor is missing or a value is out of range.
  TokenFile(const std::string& path, int64_t vocab_size);

  int64_t sequences() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  int64_t longest() const { return longest_; }
  int64_t total_tokens() const { return offsets_.back(); }
  int64_t targets() const { return targets_count_; }
  /// Where each sequence begins, in tokens, and where the last ends.
  const std::vector<int64_t>& offsets() const { return offsets_; }
  /// Whether the rows of every sequence come in pairs, chosen then rejected.
  bool pairs() const { return pairs_; }

  /// Lets the file's pages leave the process until they are read again.
  void drop() const { file_.drop(); }
  /// Adds sequence `index` to `batch`.
  void append(int64_t index, Batch& batch) const;

  /// Of the whole file: identifies the data in checkpoints.
  const std::string& sha256() const { return sha256_; }
  const std::string& path() const { return file_.path(); }

 private:
  void read_weights(int64_t count);
  void check_pairs() const;

  SafeTensors file_;
  const int32_t* tokens_;
  const int32_t* targets_;
  const int32_t* positions_;
  const float* weights_ = nullptr;  // none where all are 1
  std::vector<int64_t> offsets_;
  int64_t longest_ = 0;
  int64_t targets_count_ = 0;
  bool pairs_ = false;
  std::string sha256_;
};

/// Endless shuffled order of the sequences: every epoch each one once, in an order that (seed, epoch) fixes.
class TokenOrder {
 public:
  TokenOrder(int64_t sequences, uint64_t seed) : sequences_(sequences), seed_(seed) {}

  int64_t sequences() const { return sequences_; }

  /// The sequence at place `i` of the endless order.
  int64_t at(int64_t i);

 private:
  int64_t sequences_;
  uint64_t seed_;
  int64_t epoch_ = -1;
  std::vector<int64_t> order_;
};

}  // namespace mft
