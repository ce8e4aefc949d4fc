#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "runtime/config/train_config.h"
#include "runtime/data/line_file.h"
#include "runtime/text/bundle_text.h"

namespace mft {

/// Statistics of `write_tokens`. A preference counts as one row.
struct DataStats {
  int64_t rows = 0;           // rows read
  int64_t sequences = 0;      // sequences written
  int64_t tokens = 0;         // positions written
  int64_t target_tokens = 0;  // positions with loss
  int64_t truncated = 0;      // rows cut at the end
  int64_t dropped = 0;        // rows left out because nothing to learn remained
  int64_t bad = 0;            // malformed rows left out; only if on_bad_row is skip
};

/// Training data in a .jsonl file, as `mobile-ft train` reads it, to which an app adds rows. An incomplete last row,
/// written when power failed, is ignored and overwritten by the next row.
class Dataset {
 public:
  /// Opens the file `path`, which may not exist yet, for the model of `bundle`. Throws Error.
  Dataset(const std::string& bundle, std::string path);
  /// The same for a tokenizer that is already loaded.
  Dataset(BundleText text, std::string path);

  /// Adds a row, as JSON, and syncs it to disk. Throws Error, without changing the file, if the row is malformed, the
  /// model's chat template does not support its turns, or it is a preference and the other rows are not.
  void add(const std::string& row);
  /// The number of rows when the file was opened or a row was last added.
  int64_t rows() const { return rows_; }

  /// Writes all rows, tokenized, shuffled and packed, to the token file `tokens`. `mobile-ft train` writes the same
  /// file for the same `seq_len`, `seed` and `loss`. Throws Error, with the file and the line. An
  /// incomplete last row is malformed if the file is of others.
  DataStats write_tokens(const std::string& tokens, const TrainConfig& config, LinesOf writer = LinesOf::kUs) const;

 private:
  BundleText text_;
  std::string path_;
  std::atomic<int64_t> rows_{0};  // which other threads may ask for meanwhile
};

}  // namespace mft
