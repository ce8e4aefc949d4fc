#include "runtime/learn/version_losses.h"

#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include "runtime/base/buffer.h"
#include "runtime/base/error.h"
#include "runtime/base/sha256.h"
#include "runtime/data/token_writer.h"
#include "runtime/learn/general_text.h"
#include "runtime/train/evaluate.h"

namespace mft {
namespace {

/// Rows apart from each other as tokens, and which row each sequence is of.
struct Apart {
  Encoded encoded;
  std::vector<size_t> row_of;
};

Apart encode(const std::vector<const LoggedRow*>& rows, const RowEncoder& encoder, OnBadRow on_bad_row) {
  Apart found;
  for (size_t i = 0; i < rows.size(); ++i) {
    EncodedRows row = encode_kept(*rows[i], encoder, on_bad_row);
    found.row_of.insert(found.row_of.end(), row.groups.size(), i);
    found.encoded.add(std::move(row.groups), 1);
  }
  return found;
}

}  // namespace

std::string loss_options(const TrainConfig& config) {
  Sha256 general;
  for (const char* piece : general_text()) general.update(piece, std::strlen(piece) + 1);
  std::string text = "general_text=" + general.hex() + "\n";
  for (const Option<TrainConfig>& option : train_options()) {
    for (const char* name : {"seq_len", "loss", "beta", "label_smoothing", "simpo_gamma", "sft_weight"}) {
      if (option.name == name) text += option.name + "=" + option.get(config) + "\n";
    }
  }
  for (const Option<DataConfig>& option : data_options()) text += option.name + "=" + option.get(config.data) + "\n";
  return text;
}

void evaluate_apart(Model& model, const Encoded& encoded, const TrainConfig& config, const std::string& path,
                    const StopRequest& stop, const std::function<void(int64_t, const LossSum&)>& take) {
  write_token_file(path, encoded, apart(encoded), config.loss);
  const TokenFile data(path, model.bundle().vocab_size);
  const auto activation = static_cast<size_t>(data.longest() * model.bundle().hidden_size);
  const Buffer buffer(2 * activation * sizeof(float));
  Batch batch;
  std::vector<float> losses;
  for (int64_t s = 0; s < data.sequences(); ++s) {
    check_stop(stop);
    batch.clear();
    data.append(s, batch);
    // Without an estimate of the KL divergence, which other rows make.
    const Loss compared_as = config.loss == Loss::kKto ? Loss::kDpo : config.loss;
    float* x = buffer.floats();
    const Comparison compared = compare(model, batch, compared_as, &data, nullptr, x, x + activation);
    token_losses(model, batch, x, x + activation, losses);
    take(s, loss_of(batch, losses, compared, config, {nullptr, 0}));
  }
}

EncodedRows encode_kept(const LoggedRow& row, const RowEncoder& encoder, OnBadRow on_bad_row) {
  try {
    return encoder.encode(row.json);
  } catch (const Error& error) {
    if (on_bad_row == OnBadRow::kSkip) return {};
    fail("row ", row.id, " of night ", row.night, ": ", error.what(), "; give the options of that night, or forget it");
  }
}

void check_stop(const StopRequest& stop) {
  if (!stop.reason().empty()) throw Stopped(stop.reason() + "; the learner is as it was before");
}

void compute_losses(Model& model, const BundleText& text, const TrainConfig& config, const std::string& adapter,
                    const std::vector<LoggedRow>& rows, const std::string& work, const StopRequest& stop,
                    VersionLosses& known) {
  known.options = loss_options(config);
  std::map<std::string, HeldOutLoss> kept;
  std::vector<const LoggedRow*> unknown;
  for (const LoggedRow& row : rows) {
    const auto found = known.rows.find(row.id);
    if (found == known.rows.end()) {
      unknown.push_back(&row);
    } else {
      kept.insert(*found);
    }
  }
  known.rows = std::move(kept);
  model.prepare(adapter, config.seq_len, config.threads, Compute::kFloat32, config.mlp_tokens);
  const std::string path = work + "/evaluated.safetensors";
  TrainConfig general = config;
  general.loss = Loss::kSft;
  if (known.general == 0) {
    Encoded encoded;
    for (const char* piece : general_text()) {  // each by itself: nothing follows its end
      EncodedRows windows =
          encode_row({TextRow{piece}, 1, "text"}, text, nullptr, config.seq_len, Loss::kSft, DataConfig());
      encoded.add(std::move(windows.groups), 1);
    }
    LossSum sum;
    evaluate_apart(model, encoded, general, path, stop, [&](int64_t, const LossSum& loss) { sum += loss; });
    known.general = sum.loss / static_cast<double>(sum.count);
  }
  const RowEncoder encoder(text, config);
  const Apart found = encode(unknown, encoder, config.data.on_bad_row);
  if (found.row_of.empty()) return;
  std::map<size_t, LossSum> sums;
  evaluate_apart(model, found.encoded, config, path, stop, [&](int64_t sequence, const LossSum& loss) {
    sums[found.row_of[static_cast<size_t>(sequence)]] += loss;
  });
  for (const auto& [row, sum] : sums) {
    known.rows[unknown[row]->id] = {sum.loss, sum.count};
  }
}

}  // namespace mft
