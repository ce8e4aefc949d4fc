#include "runtime/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/config/arithmetic.h"
#include "runtime/dispatch/kernels.h"
#include "runtime/train/evaluate.h"

namespace mft {
namespace {

constexpr double kPi = 3.14159265358979323846;

/// While it lives, the model computes in float32, as any other evaluation does; then in `then` again.
struct Float32 {
  Float32(Model& of, Compute then) : model(of), compute(then) { model.use_compute(Compute::kFloat32); }
  ~Float32() { model.use_compute(compute); }
  Float32(const Float32&) = delete;
  Float32& operator=(const Float32&) = delete;

  Model& model;
  Compute compute;
};

}  // namespace

Trainer::Trainer(Model& model, const TrainConfig& config, const std::string& adapter, int64_t sequences)
    : model_(model),
      claim_(model),
      config_(config),
      selectable_(model.bundle(), config.schedule),
      moments_(model.layout(), config.lora_train, config.optimizer),
      order_(1, 0) {
  if (config_.epochs > 0) fail("epochs ", config_.epochs, ": the trainer counts steps; give steps");
  resolve(config_, 1);  // a share of the steps for warming up
  order_ = TokenOrder(sequences, static_cast<uint64_t>(config_.seed));
  order_.at(0);
  const size_t units = model_.bundle().units.size();
  plan_ = plan_training(model_, config_);
  check_budget(plan_, config_.budget);
  claim_.prepare(adapter, config_.tokens(), config_.threads, compute_of(config_), plan_.mlp_tokens);
  model_.train_lora(config_.lora_train);
  model_.keep_resident(plan_.resident);
  keep_start();
  gradients_ = Buffer(plan_.of(Component::kGradients));
  spare_gradients_ = Buffer(plan_.of(Component::kSpareGradients));
  optimizer_ = Buffer(plan_.of(Component::kOptimizer));
  checkpoints_ = Buffer(plan_.of(Component::kCheckpoints));
  saved_ = Buffer(plan_.of(Component::kSavedActivations));
  activations_ = Buffer(plan_.of(Component::kActivations));
  const bool measures = config_.schedule.measuring_step() >= 0;
  if ((measures || config_.cache_prefix) && config_.offload_folder.empty()) {
    fail(measures ? "schedule dropbp" : "cache_prefix", ": needs a folder to write to");
  }
  const int64_t offloaded = std::max(plan_.offloaded, measures ? 2 * static_cast<int64_t>(units) : 0);
  if (offloaded > 0) offload_ = OffloadFile(config_.offload_folder, offload_offset(offloaded));
  gradient_offsets_.assign(units, -1);
  unit_steps_.assign(units, 0);
  backward_runs_.assign(units, 0);
}

std::vector<std::pair<std::string, const Buffer*>> Trainer::buffers() const {
  const std::pair<Component, const Buffer*> blocks[] = {
      {Component::kStart, &start_},
      {Component::kGradients, &gradients_},
      {Component::kSpareGradients, &spare_gradients_},
      {Component::kOptimizer, &optimizer_},
      {Component::kCheckpoints, &checkpoints_},
      {Component::kSavedActivations, &saved_},
      {Component::kActivations, &activations_},
      {Component::kLora, &model_.parameter_buffer()},
      {Component::kNoAdapter, &model_.no_adapter_buffer()},
      {Component::kArena, &model_.program().arena()},
      {Component::kKernelScratch, &model_.program().scratch()},
  };
  std::vector<std::pair<std::string, const Buffer*>> named;
  for (const auto& [component, buffer] : blocks) named.emplace_back(name_of(component), buffer);
  return named;
}

std::vector<Trainer::Kept> Trainer::keep(const std::vector<bool>& selected, int64_t tokens) {
  const std::vector<bool> runs = config_.schedule.with_backward(selected);
  const auto& units = model_.bundle().units;
  const size_t activation = static_cast<size_t>(tokens * model_.bundle().hidden_size);
  std::vector<Kept> kept(units.size());
  std::vector<int64_t> to_store = plan_.stored;
  int64_t checkpoints = plan_.checkpoints, offloaded = 0;
  std::byte* saved = saved_.bytes();
  int64_t gradients = 0;
  for (size_t u = units.size(); u-- > 0;) {
    Kept& k = kept[u];
    k.selected = selected[selectable_.of(u)];
    k.runs = runs[selectable_.of(u)];
    if (!k.runs) continue;
    const UnitKind& kind = model_.bundle().kind_of(u);
    int64_t& left = to_store[plan_.group_of(units[u])];
    if (left > 0) {
      --left;
      k.saved = saved;
      saved += model_.saved_bytes(kind, tokens, plan_.mlp_tokens);
      if (!kind.backward_reads_x) continue;
    }
    if (checkpoints > 0) {
      k.checkpoint = checkpoints_.floats() + activation * static_cast<size_t>(--checkpoints);
    } else {
      k.offloaded = offloaded++;
    }
  }
  for (size_t u = 0; u < units.size(); ++u) {
    gradient_offsets_[u] = !kept[u].selected ? -1 : config_.immediate_update() ? 0 : gradients;
    if (kept[u].selected) gradients += static_cast<int64_t>(trained(u).size());
  }
  return kept;
}

void Trainer::pass_prefix(const Batch& batch, size_t units, float* out) {
  const int64_t hidden = model_.bundle().hidden_size;
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    const int64_t sequence = batch.sequences[s].index;
    const int64_t begin = batch.sequences[s].begin;
    const int64_t t = (s + 1 < batch.sequences.size() ? batch.sequences[s + 1].begin : batch.size()) - begin;
    // After `u` units; `out` may be one of the buffers, that of an even or odd number of them as the caller has it.
    const auto after = [&](size_t u) {
      return (u == units ? out : activations_.floats() + (u % 2) * static_cast<size_t>(batch.size() * hidden)) +
             begin * hidden;
    };
    const size_t passed = prefix_->passed(sequence);
    if (passed > 0) {
      prefix_->read(sequence, after(passed));
    } else {
      model_.embed(batch.tokens.data() + begin, t, after(0));
    }
    for (size_t u = passed; u < units; ++u) {
      model_.forward(u, after(u), batch.positions.data() + begin, t, after(u + 1));
    }
    if (passed < units) prefix_->write(sequence, units, after(units));
  }
}

void Trainer::reference(const Batch& batch) {
  if (config_.loss != Loss::kDpo) return;
  const size_t activation = static_cast<size_t>(batch.size() * model_.bundle().hidden_size);
  model_.use_adapter(false);
  token_losses(model_, batch, activations_.floats(), activations_.floats() + activation, reference_losses_);
  model_.use_adapter(true);
}

LossSum Trainer::head(const Batch& batch, const float* x, float* dx, size_t next) {
  losses_of_tokens_.resize(static_cast<size_t>(batch.size()));
  model_.head(x, batch.targets.data(), batch.size(), losses_of_tokens_.data(), dx, next);
  const int64_t hidden = model_.bundle().hidden_size;
  return config_.loss == Loss::kDpo ? dpo(batch, losses_of_tokens_, reference_losses_, config_.beta, dx, hidden)
                                    : cross_entropy(batch, losses_of_tokens_, dx, hidden);
}

LossSum Trainer::accumulate(const Batch& batch, const std::vector<bool>& selected, bool first,
                            const std::function<void(size_t)>& on_gradients) {
  const auto& units = model_.bundle().units;
  const int64_t t = batch.size();
  const size_t activation = static_cast<size_t>(t * model_.bundle().hidden_size);
  if (t == 0 || t > config_.tokens()) fail("a micro-batch of ", t, " tokens does not fit batch-size x seq-len");
  if (static_cast<int64_t>(selected.size()) != selectable_.count() ||
      std::count(selected.begin(), selected.end(), true) > config_.schedule.most_selected(selectable_.count())) {
    fail("one flag for each of ", selectable_.count(), selectable_.units ? " units" : " layers",
         ", and no more of them set than the schedule selects");
  }
  if (!first && spare_gradients_.size() == 0) fail("adding up gradients needs grad-accum above 1");
  const std::vector<Kept> kept = keep(selected, t);
  const int64_t* positions = batch.positions.data();

  // Forward. A unit's input goes into its checkpoint if it has one, else into one of two buffers in turn.
  float* scratch[2] = {activations_.floats(), activations_.floats() + activation};
  const auto input = [&](size_t u) {
    return u < units.size() && kept[u].checkpoint != nullptr ? kept[u].checkpoint : scratch[u % 2];
  };
  reference(batch);
  size_t first_unit = 0;
  if (prefix_ && !batch.sequences.empty()) {
    while (first_unit < units.size() && !kept[first_unit].runs) ++first_unit;
  }
  if (first_unit > 0) {
    pass_prefix(batch, first_unit, input(first_unit));
  } else {
    model_.embed(batch.tokens.data(), t, input(0));
  }
  for (size_t u = first_unit; u < units.size(); ++u) {
    if (kept[u].offloaded >= 0) offload_.write(offload_offset(kept[u].offloaded), input(u), activation * sizeof(float));
    if (kept[u].saved != nullptr) {
      model_.forward_save(u, input(u), positions, t, input(u + 1), kept[u].saved);
    } else {
      model_.forward(u, input(u), positions, t, input(u + 1));
    }
  }

  // The gradient goes on in the same two buffers, first in the one that the head does not read.
  float* dy = scratch[(units.size() + 1) % 2];
  float* dx = scratch[units.size() % 2];
  const auto next_below = [&](size_t u) {
    while (u > 0) {
      if (kept[--u].runs) return u;
    }
    return SIZE_MAX;
  };
  const LossSum loss = head(batch, input(units.size()), dy, next_below(units.size()));

  // Backward. A unit whose backward does not run passes the gradient on by its identity path; below the lowest selected
  // one nothing needs a gradient any more.
  for (size_t u = next_below(units.size()); u < units.size(); u = next_below(u)) {
    const float* x = kept[u].checkpoint;
    if (kept[u].offloaded >= 0) {
      float* read_back = activations_.floats() + 2 * activation;
      offload_.read(offload_offset(kept[u].offloaded), read_back, activation * sizeof(float));
      x = read_back;
    }
    const bool trained = kept[u].selected;
    float* gradients = trained ? gradients_.floats() + gradient_offsets_[u] : nullptr;
    model_.backward(u, dy, x, positions, t, kept[u].saved, dx, gradients, !first, spare_gradients_.floats(),
                    next_below(u));
    if (trained && on_gradients) on_gradients(u);
    std::swap(dy, dx);
    ++backward_runs_[u];
  }
  return loss;
}

double Trainer::learning_rate() const {
  const int64_t step = steps_done();
  const int64_t warmup = config_.warmup_steps.value();
  if (step < warmup) return config_.lr * static_cast<double>(step + 1) / static_cast<double>(warmup);
  const double rest = static_cast<double>(std::max<int64_t>(1, config_.steps - warmup));
  const double done = static_cast<double>(step - warmup) / rest;
  switch (config_.lr_scheduler) {
    case LrScheduler::kCosine:
      return config_.lr * 0.5 * (1.0 + std::cos(kPi * done));
    case LrScheduler::kLinear:
      return config_.lr * (1.0 - done);
    case LrScheduler::kConstant:
      return config_.lr;
  }
  fail("lr_scheduler ", static_cast<int>(config_.lr_scheduler), " is not known");
}

void Trainer::check_data(const TokenFile& data) const {
  if (data.longest() > config_.seq_len) {
    fail(data.path(), ": holds a sequence of ", data.longest(), " tokens; seq_len is ", config_.seq_len);
  }
  if (data.pairs() != (config_.loss == Loss::kDpo)) {
    fail(data.path(),
         data.pairs() ? ": holds preference pairs; they need loss dpo, not "
                      : ": holds no preference pairs, which it would have to for loss ",
         name_of(config_.loss));
  }
}

LossSum Trainer::validate(const TokenFile& data) {
  check_data(data);
  if (config_.eval_every == 0) fail(data.path(), ": no validation is planned; give eval_every");
  const size_t activation = static_cast<size_t>(config_.tokens() * model_.bundle().hidden_size);
  const Float32 comparable(model_, compute_of(config_));
  return evaluate(model_, data, config_.beta, activations_.floats(), activations_.floats() + activation);
}

void Trainer::keep_start() {
  start_ = Buffer(plan_.of(Component::kStart));
  if (start_.size() == 0) return;
  size_t offset = 0;
  for (size_t u = 0; u < model_.bundle().units.size(); ++u) {
    const AdapterLayout::Range range = trained(u);
    std::memcpy(start_.floats() + offset, model_.parameters() + range.begin, range.size() * sizeof(float));
    start_offsets_.push_back(offset);
    offset += range.size();
  }
}

void Trainer::add_proximal(size_t unit, int64_t count) {
  if (start_.size() == 0) return;
  const AdapterLayout::Range range = trained(unit);
  const float* now = model_.parameters() + range.begin;
  const float* start = start_.floats() + start_offsets_[unit];
  float* gradients = gradients_.floats() + gradient_offsets_[unit];
  const float scale = static_cast<float>(config_.proximal_mu * static_cast<double>(count));
  for (size_t i = 0; i < range.size(); ++i) gradients[i] += scale * (now[i] - start[i]);
}

void Trainer::update(size_t unit, const float* gradients, double lr, double gradient_scale) {
  AdamWConfig adamw;
  adamw.weight_decay = config_.weight_decay;
  moments_.step(optimizer_.bytes(), unit, model_.parameters() + trained(unit).begin, gradients, lr,
                static_cast<float>(gradient_scale), ++unit_steps_[unit], adamw);
}

void Trainer::use_sensitivities(std::vector<double> sensitivities) {
  sensitivities_ = std::move(sensitivities);
  config_.schedule.drop_rates.clear();
  if (sensitivities_.empty()) return;
  const Bundle& bundle = model_.bundle();
  std::vector<double> flops;
  for (size_t u = 0; u < bundle.units.size(); ++u) flops.push_back(bundle.kind_of(u).flops.at(config_.seq_len));
  config_.schedule.drop_rates = allocate_drop_rates(sensitivities_, flops, 1 - config_.schedule.ratio);
}

StepResult Trainer::step(const TokenFile& data) {
  check_data(data);
  if (steps_done() >= config_.steps) fail("all ", config_.steps, " steps are done");
  if (order_.sequences() != data.sequences()) {
    order_ = TokenOrder(data.sequences(), static_cast<uint64_t>(config_.seed));
  }
  const auto& units = model_.bundle().units;
  if (config_.cache_prefix && !(prefix_ && prefix_->is_of(data)))
    prefix_.emplace(config_.offload_folder, data, model_.bundle().hidden_size);
  const auto next_batch = [&](int64_t next) {
    batch_.clear();
    for (int64_t i = 0; i < config_.batch_size; ++i) data.append(order_.at(next++), batch_);
  };
  int64_t next = steps_done() * config_.grad_accum * config_.batch_size;
  if (steps_done() == config_.schedule.measuring_step()) {
    // On the step's first micro-batch that has a target: a step has at least one.
    for (int64_t micro = 0; micro < config_.grad_accum; ++micro) {
      next_batch(next + micro * config_.batch_size);
      if (batch_.target_count > 0) break;
    }
    use_sensitivities(measure_sensitivities(batch_));
  }
  const std::vector<bool> choice = config_.schedule.select(steps_done(), selectable_.count());
  const auto selected = [&](size_t unit) { return choice[selectable_.of(unit)]; };
  const auto must_be_finite = [&](double value) {
    if (!std::isfinite(value)) fail("step ", steps_done() + 1, ": the loss is not finite; lower lr");
  };
  StepResult result{};
  result.lr = learning_rate();
  for (size_t u = 0; u < units.size(); ++u) result.trained.push_back(selected(u));
  double squares = 0;
  int64_t count = 0;  // targets or pairs, of which the loss is the mean
  const auto finish_gradients = [&](size_t unit) {
    add_proximal(unit, count);
    const double sum = kernels().sum_of_squares(gradients(unit), static_cast<int64_t>(trained(unit).size()));
    must_be_finite(sum);
    squares += sum;
    ++result.backward_units;
  };
  for (int64_t micro = 0; micro < config_.grad_accum; ++micro, next += config_.batch_size) {
    next_batch(next);
    count += data.pairs() ? std::count(batch_.positions.begin(), batch_.positions.end(), 0) / 2 : batch_.target_count;
    if (micro + 1 == config_.grad_accum && count == 0) {
      fail(data.path(), ": a whole step without a target; every row needs at least one");
    }
    std::function<void(size_t)> at_once;
    if (config_.immediate_update()) {
      at_once = [&](size_t unit) {
        finish_gradients(unit);
        update(unit, gradients(unit), result.lr, 1.0 / static_cast<double>(count));
      };
    }
    result.sums += accumulate(batch_, choice, micro == 0, at_once);
    result.tokens += batch_.size();
  }
  result.loss = result.sums.loss / static_cast<double>(count);
  must_be_finite(result.loss);
  if (!config_.immediate_update()) {
    for (size_t u = 0; u < units.size(); ++u) {
      if (selected(u)) finish_gradients(u);
    }
  }
  result.grad_norm = std::sqrt(squares) / static_cast<double>(count);
  // As torch.nn.utils.clip_grad_norm_ does.
  const double clip =
      config_.max_grad_norm > 0 ? std::min(1.0, config_.max_grad_norm / (result.grad_norm + 1e-6)) : 1.0;
  for (size_t u = 0; u < units.size(); ++u) {
    const bool stays = config_.unselected == Unselected::kSkip || config_.schedule.rule->rest != Rest::kIdentity;
    if (!selected(u) && stays) continue;
    if (selected(u) && config_.immediate_update()) continue;
    update(u, selected(u) ? gradients(u) : nullptr, result.lr, clip / static_cast<double>(count));
  }
  data.drop();  // or an epoch would leave the whole file resident
  losses_.push_back(result.loss);
  result.step = steps_done();
  targets_seen_ += count;
  return result;
}

}  // namespace mft
