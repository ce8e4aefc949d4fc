#include "runtime/train/evaluate.h"

#include <cmath>
#include <utility>

#include "runtime/base/buffer.h"
#include "runtime/base/error.h"

namespace mft {

void token_losses(Model& model, const Batch& batch, float* x, float* y, std::vector<float>& losses) {
  const int64_t t = batch.size();
  losses.resize(static_cast<size_t>(t));
  model.embed(batch.tokens.data(), t, x);
  for (size_t unit = 0; unit < model.bundle().units.size(); ++unit) {
    model.forward(unit, x, batch.positions.data(), t, y);
    std::swap(x, y);
  }
  model.head_loss(x, batch.targets.data(), t, losses.data());
}

LossSum evaluate(Model& model, const TokenFile& data, const TrainConfig& config, ReferenceCache* cache, float* x,
                 float* y, const std::function<void(int64_t, const LossSum&)>& on_sequence) {
  LossSum sum;
  Batch batch;
  std::vector<float> losses;
  for (int64_t s = 0; s < data.sequences(); ++s) {
    batch.clear();
    data.append(s, batch);
    batch.weights.clear();
    const Comparison compared = compare(model, batch, config.loss, &data, cache, x, y);
    token_losses(model, batch, x, y, losses);
    const LossSum own = loss_of(batch, losses, compared, config, {nullptr, 0});
    sum += own;
    data.drop();  // or the whole file would be resident at the end
    if (on_sequence) on_sequence(s, own);
  }
  return sum;
}

LossSum evaluate_file(Model& model, const std::string& adapter, const std::string& path,
                      const std::function<void(int64_t, const LossSum&)>& on_sequence) {
  const TokenFile data(path, model.bundle().vocab_size);
  if (data.rows() != RowKind::kTexts) {
    fail(path, ": contains ", data.rows() == RowKind::kPairs ? "preference pairs" : "rows with labels",
         "; evaluation needs texts");
  }
  model.prepare(adapter, data.longest());
  const size_t activation = static_cast<size_t>(data.longest() * model.bundle().hidden_size);
  const Buffer buffer(2 * activation * sizeof(float));
  float* x = buffer.floats();
  const LossSum sum = evaluate(model, data, TrainConfig(), nullptr, x, x + activation, on_sequence);
  if (sum.count == 0) fail(path, ": no targets to evaluate");
  if (!std::isfinite(sum.loss)) fail(path, ": the loss is not finite");
  return sum;
}

}  // namespace mft
