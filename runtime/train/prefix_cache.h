#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/bundle/token_file.h"
#include "runtime/train/offload_file.h"

namespace mft {

/// What frozen lower units made of each sequence of a token file, float32 on disk: layers that never change again need
/// not be computed again in the next epoch. Gone with the process; a resumed run fills it anew.
class PrefixCache {
 public:
  /// Claims the disk space for all of `data` in `folder`. Throws Error where it cannot be had.
  PrefixCache(const std::string& folder, const TokenFile& data, int64_t hidden_size);

  bool is_of(const TokenFile& data) const { return data.sha256() == data_; }
  /// How many units, from the lowest, the sequence has passed; 0 where nothing of it is known.
  size_t passed(int64_t sequence) const { return passed_[static_cast<size_t>(sequence)]; }
  /// Their output [tokens of the sequence, hidden_size].
  void read(int64_t sequence, float* x) const;
  void write(int64_t sequence, size_t passed, const float* x);

 private:
  uint64_t offset(int64_t sequence) const;
  size_t bytes(int64_t sequence) const;

  OffloadFile file_;
  std::string data_;             // its SHA-256
  std::vector<int64_t> begins_;  // in tokens, and the end of the last
  size_t token_bytes_;
  std::vector<size_t> passed_;
};

}  // namespace mft
