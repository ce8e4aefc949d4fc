#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/bundle/token_file.h"
#include "runtime/model/model.h"
#include "runtime/train/loss.h"
#include "runtime/train/offload_file.h"

namespace mft {

/// A row's loss without the adapter, and that of its mismatched row, which only KTO has.
struct ReferenceLoss {
  double row, mismatched;
};

/// The reference's losses of a token file's rows, on disk: the model without adapter does not change, so an epoch need
/// not compute what an earlier one did. They are gone with the process; a resumed run computes the same again.
class ReferenceCache {
 public:
  /// Reserves disk space in `folder`, 16 bytes a token. Throws Error if that fails.
  ReferenceCache(const std::string& folder, const TokenFile& data);

  bool is_of(const TokenFile& data) const { return data.sha256() == data_; }
  /// Reads the losses of a sequence's rows. Returns false if they are not known yet.
  bool read(int64_t sequence, std::vector<ReferenceLoss>& rows) const;
  void write(int64_t sequence, const std::vector<ReferenceLoss>& rows);

 private:
  uint64_t offset(int64_t sequence) const;

  OffloadFile file_;
  std::string data_;             // its SHA-256
  std::vector<int64_t> begins_;  // in tokens; a row has at least one
  std::vector<bool> known_;
};

/// KTO's mismatched rows: the prompts of a sequence's rows, each with the answer of the row before it, the first with
/// that of the last, as in TRL. They have as many tokens as the sequence. A row that is alone takes the first answer of
/// `other`, cut to `most` tokens in all; without another row there is none. A row's answer begins at its first target.
Batch mismatched(const Batch& sequence, const Batch& other, int64_t most);

/// Computes what the rows of `batch` are compared with, a sequence at a time, so that no other sequence changes a bit
/// of it. `data` is the file of the batch's sequences, null if they are of none; `cache` may be null. x and y are two
/// buffers [the larger of the batch and the longest sequence, hidden].
Comparison compare(Model& model, const Batch& batch, Loss loss, const TokenFile* data, ReferenceCache* cache, float* x,
                   float* y);

}  // namespace mft
