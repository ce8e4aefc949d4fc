#include "runtime/core/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/core/error.h"
#include "runtime/kernels/adamw.h"

namespace mft {
namespace {

constexpr double kPi = 3.14159265358979323846;

const TrainConfig& checked(const TrainConfig& c) {
  const auto positive = [](const char* name, int64_t value) {
    if (value < 1) fail(name, " ", value, ": must be at least 1");
  };
  positive("steps", c.steps);
  positive("seq-len", c.seq_len);
  positive("batch-size", c.batch_size);
  positive("grad-accum", c.grad_accum);
  if (c.warmup_steps < 0) fail("warmup-steps ", c.warmup_steps, ": must not be negative");
  if (!(c.lr > 0) || !std::isfinite(c.lr)) fail("lr ", c.lr, ": must be above 0");
  if (!(c.weight_decay >= 0)) fail("weight-decay ", c.weight_decay, ": must not be negative");
  if (!(c.max_grad_norm >= 0)) fail("max-grad-norm ", c.max_grad_norm, ": must not be negative; 0 is no clipping");
  return c;
}

size_t largest_unit(const AdapterLayout& layout) {
  size_t most = 0;
  for (size_t u = 0; u < layout.units.size(); ++u) most = std::max(most, layout.range(u).size());
  return most;
}

}  // namespace

Trainer::Trainer(Model& model, const TrainConfig& config, const std::string& adapter)
    : model_(model), config_(checked(config)), order_(1, config.seed) {
  const int64_t most_tokens = model_.bundle().max_seq_len;
  if (config_.seq_len > most_tokens || config_.batch_size > most_tokens / config_.seq_len) {
    fail("batch-size ", config_.batch_size, " x seq-len ", config_.seq_len, " tokens; the bundle's maximum is ",
         most_tokens, " (export with a larger --max-seq-len)");
  }
  const int64_t tokens = config_.batch_size * config_.seq_len;
  plan_ = plan_training(model_, config_.schedule, tokens, config_.grad_accum > 1, config_.backward, config_.budget);
  check_budget(plan_, config_.budget);
  model_.prepare(adapter, tokens);
  const size_t bytes = model_.layout().size * sizeof(float);
  const size_t units = model_.bundle().units.size();
  const size_t activation = static_cast<size_t>(tokens * model_.bundle().hidden_size) * sizeof(float);
  const int64_t layers = model_.bundle().num_layers;
  const int64_t most_layers = config_.schedule.most_selected(layers);
  gradients_ = Buffer(bytes);
  if (config_.grad_accum > 1) unit_gradients_ = Buffer(largest_unit(model_.layout()) * sizeof(float));
  exp_avg_ = Buffer(bytes);
  exp_avg_sq_ = Buffer(bytes);
  checkpoints_ = Buffer(static_cast<size_t>(most_layers) * (units / static_cast<size_t>(layers)) * activation);
  saved_ = Buffer(static_cast<size_t>(plan_.stored_layers) * model_.saved_layer_bytes(tokens));
  activations_ = Buffer(4 * activation);
  unit_steps_.assign(units, 0);
  backward_runs_.assign(units, 0);
}

double Trainer::accumulate(const Batch& batch, const std::vector<bool>& layers, bool first) {
  const auto& units = model_.bundle().units;
  const int64_t t = batch.size();
  const size_t activation = static_cast<size_t>(t * model_.bundle().hidden_size);
  if (t == 0 || t > config_.batch_size * config_.seq_len) {
    fail("a micro-batch of ", t, " tokens does not fit batch-size x seq-len");
  }
  const int64_t num_layers = model_.bundle().num_layers;
  if (static_cast<int64_t>(layers.size()) != num_layers ||
      std::count(layers.begin(), layers.end(), true) > config_.schedule.most_selected(num_layers)) {
    fail("one flag for each of ", num_layers, " layers, and no more of them set than the schedule selects");
  }
  if (!first && unit_gradients_.size() == 0) fail("adding up gradients needs grad-accum above 1");
  const auto selected = [&](size_t unit) { return layers[static_cast<size_t>(units[unit].layer)]; };
  const int64_t* positions = batch.positions.data();

  // Forward. A selected unit's input goes into a checkpoint slot, any other into one of two buffers in turn.
  float* scratch[2] = {activations_.floats(), activations_.floats() + activation};
  std::vector<float*> inputs(units.size() + 1);
  size_t slots = 0;
  for (size_t u = 0; u <= units.size(); ++u) {
    const bool keep = u < units.size() && selected(u);
    inputs[u] = keep ? checkpoints_.floats() + activation * slots++ : scratch[u % 2];
  }
  // The top selected layers keep their activations, as far as the plan has room.
  std::vector<std::byte*> saved(units.size(), nullptr);
  int64_t selected_layers = std::count(layers.begin(), layers.end(), true);
  std::byte* next_saved = saved_.bytes();
  for (size_t u = 0; u < units.size(); ++u) {
    if (u > 0 && units[u].layer != units[u - 1].layer && selected(u - 1)) --selected_layers;
    if (!selected(u) || selected_layers > plan_.stored_layers) continue;
    saved[u] = next_saved;
    next_saved += model_.saved_bytes(u, t);
  }
  model_.embed(batch.tokens.data(), t, inputs[0]);
  for (size_t u = 0; u < units.size(); ++u) {
    if (saved[u] != nullptr) {
      model_.forward_save(u, inputs[u], positions, t, inputs[u + 1], saved[u]);
    } else {
      model_.forward(u, inputs[u], positions, t, inputs[u + 1]);
    }
  }

  float* dy = activations_.floats() + 2 * activation;
  float* dx = dy + activation;
  const double loss = model_.head(inputs.back(), batch.targets.data(), t, dy);

  // Backward. An unselected unit passes the gradient on by its identity path; below the lowest selected one nothing
  // needs a gradient any more.
  for (size_t u = units.size(); u-- > 0 && slots > 0;) {
    if (!selected(u)) continue;
    const AdapterLayout::Range range = model_.layout().range(u);
    float* gradients = gradients_.floats() + range.begin;
    float* target = first ? gradients : unit_gradients_.floats();
    model_.backward(u, dy, inputs[u], positions, t, saved[u], dx, target);
    if (!first) {
      for (size_t i = 0; i < range.size(); ++i) gradients[i] += target[i];
    }
    std::swap(dy, dx);
    ++backward_runs_[u];
    --slots;
  }
  return loss;
}

double Trainer::learning_rate() const {
  const int64_t step = steps_done();
  if (step < config_.warmup_steps) {
    return config_.lr * static_cast<double>(step + 1) / static_cast<double>(config_.warmup_steps);
  }
  if (!config_.cosine) return config_.lr;
  const double rest = static_cast<double>(std::max<int64_t>(1, config_.steps - config_.warmup_steps));
  return config_.lr * 0.5 * (1.0 + std::cos(kPi * static_cast<double>(step - config_.warmup_steps) / rest));
}

void Trainer::update(const std::vector<bool>& layers, double lr, double gradient_scale) {
  AdamWConfig adamw;
  adamw.weight_decay = config_.weight_decay;
  const auto& units = model_.bundle().units;
  for (size_t u = 0; u < units.size(); ++u) {
    const bool selected = layers[static_cast<size_t>(units[u].layer)];
    if (!selected && config_.skip_unselected) continue;
    const AdapterLayout::Range range = model_.layout().range(u);
    adamw_step(model_.parameters() + range.begin, selected ? gradients_.floats() + range.begin : nullptr,
               exp_avg_.floats() + range.begin, exp_avg_sq_.floats() + range.begin, static_cast<int64_t>(range.size()),
               lr, static_cast<float>(gradient_scale), ++unit_steps_[u], adamw);
  }
}

StepResult Trainer::step(const TokenFile& data) {
  if (data.longest() > config_.seq_len) {
    fail(data.path(), ": holds a sequence of ", data.longest(), " tokens; seq-len is ", config_.seq_len);
  }
  if (order_.sequences() != data.sequences()) order_ = TokenOrder(data.sequences(), config_.seed);
  const auto& units = model_.bundle().units;
  const std::vector<bool> layers = config_.schedule.select(steps_done(), model_.bundle().num_layers);
  StepResult result{};
  double loss = 0;
  int64_t targets = 0;
  int64_t next = steps_done() * config_.grad_accum * config_.batch_size;
  for (int64_t micro = 0; micro < config_.grad_accum; ++micro) {
    batch_.clear();
    for (int64_t i = 0; i < config_.batch_size; ++i) data.append(order_.at(next++), batch_);
    loss += accumulate(batch_, layers, micro == 0);
    targets += batch_.target_count;
    result.tokens += batch_.size();
  }
  if (targets == 0) fail(data.path(), ": a whole step without a target; every row needs at least one");
  double squares = 0;
  for (size_t u = 0; u < units.size(); ++u) {
    if (!layers[static_cast<size_t>(units[u].layer)]) continue;
    const AdapterLayout::Range range = model_.layout().range(u);
    squares += sum_of_squares(gradients_.floats() + range.begin, static_cast<int64_t>(range.size()));
    ++result.backward_units;
  }
  result.loss = loss / static_cast<double>(targets);
  result.grad_norm = std::sqrt(squares) / static_cast<double>(targets);
  result.lr = learning_rate();
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
    fail("step ", steps_done() + 1, ": the loss is not finite; lower --lr");
  }
  // As torch.nn.utils.clip_grad_norm_ does.
  const double clip =
      config_.max_grad_norm > 0 ? std::min(1.0, config_.max_grad_norm / (result.grad_norm + 1e-6)) : 1.0;
  update(layers, result.lr, clip / static_cast<double>(targets));
  data.drop();  // or an epoch would leave the whole file resident
  losses_.push_back(result.loss);
  result.step = steps_done();
  return result;
}

}  // namespace mft
