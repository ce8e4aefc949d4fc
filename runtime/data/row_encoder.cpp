#include "runtime/data/row_encoder.h"

namespace mft {

RowEncoder::RowEncoder(const BundleText& text, const TrainConfig& config) : text_(text), config_(config) {
  if (text.chat_template() == nullptr) return;
  chat_template_ = text.chat_template()->with({config.data.chat_template_kwargs, config.data.chat_template_date});
}

EncodedRows RowEncoder::encode(std::string_view json) const {
  const DataConfig& data = config_.data;
  const Row row = parse_row(json, {data.messages_key, data.prompt_key, data.completion_key});
  return encode_row(row, text_, chat_template_ ? &*chat_template_ : nullptr, config_.seq_len, config_.loss, data);
}

}  // namespace mft
