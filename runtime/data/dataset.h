#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "runtime/config/train_config.h"
#include "runtime/text/bundle_text.h"

namespace mft {

/// What `write_tokens` did; a preference counts as one row.
struct DataStats {
  int64_t rows = 0;           // read
  int64_t sequences = 0;      // written
  int64_t tokens = 0;         // places written
  int64_t target_tokens = 0;  // places with loss
  int64_t truncated = 0;      // rows that lost their end
  int64_t dropped = 0;        // rows left out, as nothing to learn remained
  int64_t bad = 0;            // rows left out, as they cannot be used; only if on_bad_row is skip
};

/// Rows of training data in a .jsonl file, the same that `mobile-ft train` takes, to which rows are added as they come
/// up. What adding a row left half written, as the power failed, is no row, and gone with the next one.
class Dataset {
 public:
  /// `bundle`'s model will read the rows in the file `path`, which may not exist yet. Throws Error.
  Dataset(const std::string& bundle, std::string path);
  /// The same for a model whose way of reading text is known already.
  Dataset(BundleText text, std::string path);

  /// Adds a row, which is on disk when this returns. Throws Error where it is no row, this model's chat template has no
  /// such turns, or it is a preference and the others are not; the file is then as it was. `row` is JSON.
  void add(const std::string& row);
  /// As many as there were when this was opened, or a row was added last.
  int64_t rows() const { return rows_; }

  /// Writes all rows as tokens, shuffled and packed, to the token file `tokens`: the file that `mobile-ft train` makes
  /// of them with the same `seq_len`, `seed` and `loss`. Throws Error naming file and line.
  DataStats write_tokens(const std::string& tokens, const TrainConfig& config) const;

 private:
  BundleText text_;
  std::string path_;
  std::atomic<int64_t> rows_{0};  // which other threads may ask for meanwhile
};

}  // namespace mft
