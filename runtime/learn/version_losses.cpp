#include "runtime/learn/version_losses.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/base/buffer.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/data/token_writer.h"
#include "runtime/learn/general_text.h"
#include "runtime/train/evaluate.h"

namespace mft {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kLossesFile = "/losses.json";
constexpr size_t kMostBytes = size_t{64} << 20;

/// Rows apart from each other as tokens, and which row each sequence is of.
struct Apart {
  Encoded encoded;
  std::vector<size_t> row_of;
};

Apart encode(const std::vector<const LoggedRow*>& rows, const RowEncoder& encoder) {
  Apart found;
  for (size_t i = 0; i < rows.size(); ++i) {
    EncodedRows row = encoder.encode(rows[i]->json);
    found.row_of.insert(found.row_of.end(), row.groups.size(), i);
    found.encoded.add(std::move(row.groups), 1);
  }
  return found;
}

/// Calls `take(sequence, loss)` with what the prepared model loses on each group alone.
void evaluate_apart(Model& model, const Encoded& encoded, TrainConfig config, const std::string& path,
                    const std::function<void(int64_t, const LossSum&)>& take) {
  write_token_file(path, encoded, apart(encoded), config.loss);
  const TokenFile data(path, model.bundle().vocab_size);
  const auto activation = static_cast<size_t>(data.longest() * model.bundle().hidden_size);
  const Buffer buffer(2 * activation * sizeof(float));
  config.sft_weight = 0;  // the share of cross-entropy is of all tokens in a batch, not of a row
  Batch batch;
  std::vector<float> losses;
  for (int64_t s = 0; s < data.sequences(); ++s) {
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

}  // namespace

VersionLosses read_losses(const std::string& folder) {
  VersionLosses losses;
  const std::string path = folder + kLossesFile;
  if (folder.empty() || !file_exists(path)) return losses;
  try {
    const Json json = parse_json<Json>(read_text(path, kMostBytes), path);
    losses.rows = json.at("rows").get<std::map<std::string, double>>();
    losses.general = json.at("general");
  } catch (const std::exception&) {  // it is computed again
    return {};
  }
  return losses;
}

void write_losses(const std::string& folder, const VersionLosses& losses) {
  const std::string text = Json{{"general", losses.general}, {"rows", losses.rows}}.dump() + "\n";
  write_atomically(folder + kLossesFile, {{text.data(), text.size()}});
}

void compute_losses(Model& model, const BundleText& text, const TrainConfig& config, const std::string& adapter,
                    const std::vector<LoggedRow>& rows, const std::string& work, VersionLosses& known) {
  std::map<std::string, double> kept;
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
  model.prepare(adapter, config.seq_len, config.threads);
  const std::string path = work + "/evaluated.safetensors";
  TrainConfig general = config;
  general.loss = Loss::kSft;
  if (known.general == 0) {
    const EncodedRows windows =
        encode_row({TextRow{kGeneralText}}, text, nullptr, config.seq_len, Loss::kSft, DataConfig());
    Encoded encoded;
    encoded.add(windows.groups, 1);
    LossSum sum;
    evaluate_apart(model, encoded, general, path, [&](int64_t, const LossSum& loss) { sum += loss; });
    known.general = sum.loss / static_cast<double>(sum.count);
  }
  const RowEncoder encoder(text, config);
  const Apart found = encode(unknown, encoder);
  if (found.row_of.empty()) return;
  std::map<size_t, LossSum> sums;
  evaluate_apart(model, found.encoded, config, path, [&](int64_t sequence, const LossSum& loss) {
    sums[found.row_of[static_cast<size_t>(sequence)]] += loss;
  });
  for (const auto& [row, sum] : sums) {
    if (!std::isfinite(sum.loss)) fail(adapter, ": the loss of the held-out row ", unknown[row]->id, " is not finite");
    known.rows[unknown[row]->id] = sum.loss / static_cast<double>(sum.count);
  }
}

}  // namespace mft
