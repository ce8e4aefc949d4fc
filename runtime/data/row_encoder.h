#pragma once

#include <optional>
#include <string_view>

#include "runtime/config/train_config.h"
#include "runtime/data/encode_row.h"
#include "runtime/text/bundle_text.h"

namespace mft {

/// Encodes rows of JSON with a bundle's tokenizer and the settings of a run.
class RowEncoder {
 public:
  /// `text` and `config` must outlive the encoder.
  RowEncoder(const BundleText& text, const TrainConfig& config);

  /// Throws Error if the row is malformed, or cannot be used with the model or the loss.
  EncodedRows encode(std::string_view json) const;

 private:
  const BundleText& text_;
  const TrainConfig& config_;
  std::optional<ChatTemplate> chat_template_;  // the bundle's with the run's settings, if it has one
};

}  // namespace mft
