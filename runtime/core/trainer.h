#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/model.h"
#include "runtime/core/plan.h"
#include "runtime/core/schedule.h"
#include "runtime/core/token_file.h"

namespace mft {

struct TrainConfig {
  int64_t steps = 100;
  int64_t seq_len = 256;
  int64_t batch_size = 1;  // sequences a micro-batch
  int64_t grad_accum = 1;  // micro-batches a step
  double lr = 2e-4;
  bool cosine = true;  // else constant
  int64_t warmup_steps = 0;
  double weight_decay = 0.0;
  double max_grad_norm = 1.0;    // 0: no clipping
  bool skip_unselected = false;  // else AdamW goes on moving unselected adapters by their momentum
  Schedule schedule;
  Backward backward = Backward::kRecompute;
  uint64_t seed = 0;
  uint64_t budget = 0;  // bytes, 0: no limit
};

struct StepResult {
  int64_t step;      // counts from 1
  double loss;       // mean over the step's targets
  double grad_norm;  // of the selected units, before clipping
  double lr;
  int64_t tokens;
  int64_t backward_units;
};

/// The training loop: forward through all units, backward through the selected ones, AdamW on the LoRA parameters.
class Trainer {
 public:
  /// Plans the memory, refuses where the budget is too small, then allocates everything. `adapter` is the folder to
  /// start from, empty for the bundle's initial adapter.
  Trainer(Model& model, const TrainConfig& config, const std::string& adapter);

  /// Loss sum and gradient sums of one micro-batch, for the units of the selected layers; the first of a step
  /// overwrites the gradients, others add to them.
  double accumulate(const Batch& batch, const std::vector<bool>& layers, bool first);

  /// One optimizer step on the next `grad_accum` micro-batches of `data`.
  StepResult step(const TokenFile& data);

  /// Writes `checkpoint.safetensors` into `folder`: everything that `resume` needs.
  void save_checkpoint(const std::string& folder, const TokenFile& data) const;
  /// Continues from that file. Throws Error naming what differs where it belongs to another run.
  void resume(const std::string& folder, const TokenFile& data);

  const Plan& plan() const { return plan_; }
  int64_t steps_done() const { return static_cast<int64_t>(losses_.size()); }
  const std::vector<double>& losses() const { return losses_; }
  /// How often each unit ran its backward.
  const std::vector<int64_t>& backward_runs() const { return backward_runs_; }
  const float* gradients() const { return gradients_.floats(); }
  Model& model() { return model_; }
  const Model& model() const { return model_; }

 private:
  double learning_rate() const;
  void update(const std::vector<bool>& layers, double lr, double gradient_scale);
  std::string fingerprint(const TokenFile& data) const;

  Model& model_;
  TrainConfig config_;
  Plan plan_;
  Buffer gradients_;
  Buffer unit_gradients_;  // of one micro-batch, where several are added up
  Buffer exp_avg_;
  Buffer exp_avg_sq_;
  Buffer checkpoints_;               // inputs of the selected units
  Buffer saved_;                     // activations of the layers that the plan stores
  Buffer activations_;               // two to go forward, two to go back
  std::vector<int64_t> unit_steps_;  // AdamW's step count of each unit
  std::vector<int64_t> backward_runs_;
  std::vector<double> losses_;
  TokenOrder order_;
  Batch batch_;
};

/// Summed loss and target count of all sequences of `data`; `progress(done, total)` after each.
template <typename Progress>
std::pair<double, int64_t> evaluate(Model& model, const TokenFile& data, const Progress& progress) {
  const size_t activation = static_cast<size_t>(data.longest() * model.bundle().hidden_size);
  Buffer buffer(2 * activation * sizeof(float));
  double loss = 0;
  int64_t targets = 0;
  Batch batch;
  for (int64_t s = 0; s < data.sequences(); ++s) {
    batch.clear();
    data.append(s, batch);
    float* x = buffer.floats();
    float* y = x + activation;
    model.embed(batch.tokens.data(), batch.size(), x);
    for (size_t unit = 0; unit < model.bundle().units.size(); ++unit) {
      model.forward(unit, x, batch.positions.data(), batch.size(), y);
      std::swap(x, y);
    }
    loss += model.head_loss(x, batch.targets.data(), batch.size());
    targets += batch.target_count;
    progress(s + 1, data.sequences());
  }
  return {loss, targets};
}

}  // namespace mft
