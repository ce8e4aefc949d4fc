#include "runtime/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/config/arithmetic.h"
#include "runtime/config/auto_lr.h"
#include "runtime/dispatch/kernels.h"
#include "runtime/platform/threads.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/learning_rate.h"

namespace mft {
namespace {

/// While it lives, the model computes in float32, as any other evaluation does; then in `then` again.
struct Float32 {
  Float32(Model& of, Compute then) : model(of), compute(then) { model.use_compute(Compute::kFloat32); }
  ~Float32() { model.use_compute(compute); }
  Float32(const Float32&) = delete;
  Float32& operator=(const Float32&) = delete;

  Model& model;
  Compute compute;
};

/// What the loss is a mean of: a batch's targets, pairs or rows.
int64_t count_of(const Batch& batch, Loss loss) {
  const int64_t rows = std::count(batch.positions.begin(), batch.positions.end(), 0);
  return loss == Loss::kSft ? batch.target_count : learns_from_pairs(loss) ? rows / 2 : rows;
}

RowKind rows_for(Loss loss) {
  return loss == Loss::kSft ? RowKind::kTexts : learns_from_pairs(loss) ? RowKind::kPairs : RowKind::kLabels;
}

const char* text_of(RowKind rows) {
  return rows == RowKind::kTexts   ? "texts (loss sft)"
         : rows == RowKind::kPairs ? "preference pairs (loss dpo, ipo, orpo or simpo)"
                                   : "answers with labels (loss kto)";
}

}  // namespace

Trainer::Trainer(Model& model, const TrainConfig& config, const std::string& adapter, int64_t sequences)
    : model_(model),
      claim_(model),
      config_(config),
      selectable_(model.bundle(), config.schedule),
      moments_(model.layout(), config.lora_train, config.optimizer),
      order_(1, 0) {
  if (config_.epochs > 0) fail("epochs ", config_.epochs, ": not supported here; set steps");
  resolve(config_, 1, base_lr(model.bundle()));  // a share of the steps for warming up
  order_ = TokenOrder(sequences, static_cast<uint64_t>(config_.seed));
  order_.at(0);
  const size_t units = model_.bundle().units.size();
  plan_ = plan_training(model_, config_);
  check_budget(plan_, config_);
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
    fail(measures ? "schedule dropbp" : "cache_prefix", ": requires offload_folder, a folder for temporary files");
  }
  const int64_t offloaded = std::max(plan_.offloaded, measures ? 2 * static_cast<int64_t>(units) : 0);
  const uint64_t side = measures ? units * model_.side_tensors().gradient_bytes() : 0;
  if (offloaded > 0) offload_ = OffloadFile(config_.offload_folder, offload_offset(offloaded) + side);
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
      {Component::kSideTensors, &model_.side_tensors().buffer()},
      {Component::kArena, &model_.program().arena()},
      {Component::kKernelScratch, &model_.program().scratch()},
  };
  std::vector<std::pair<std::string, const Buffer*>> named;
  for (const auto& [component, buffer] : blocks) named.emplace_back(name_of(component), buffer);
  return named;
}

void Trainer::check_data(const TokenFile& data) const {
  if (data.longest() > config_.seq_len) {
    fail(data.path(), ": contains a sequence of ", data.longest(), " tokens; seq_len is ", config_.seq_len);
  }
  if (data.rows() != rows_for(config_.loss)) {
    fail(data.path(), ": contains ", text_of(data.rows()), "; loss ", name_of(config_.loss), " needs ",
         text_of(rows_for(config_.loss)));
  }
}

LossSum Trainer::validate(const TokenFile& data) {
  check_data(data);
  if (config_.eval_every == 0) fail(data.path(), ": validation is not planned; set eval_every");
  const size_t activation = static_cast<size_t>(config_.tokens() * model_.bundle().hidden_size);
  const ThreadParts parts(config_.threads);
  const Float32 comparable(model_, compute_of(config_));
  if (needs_reference(config_.loss) && !config_.offload_folder.empty() &&
      !(valid_references_ && valid_references_->is_of(data))) {
    valid_references_.emplace(config_.offload_folder, data);
  }
  return evaluate(model_, data, config_, valid_references_ ? &*valid_references_ : nullptr, activations_.floats(),
                  activations_.floats() + activation);
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
  const struct Forget {  // the file may be gone after this step
    const TokenFile*& data;
    ~Forget() { data = nullptr; }
  } forget{data_};
  if (steps_done() >= config_.steps) fail("all ", config_.steps, " steps are done");
  const ThreadParts parts(config_.threads);
  open_data(data);
  if (steps_done() == config_.schedule.measuring_step()) {
    next_batch_with_target(data);
    use_sensitivities(measure_sensitivities(batch_));
  }
  const std::vector<bool> selected = config_.schedule.select(steps_done(), selectable_.count());
  StepResult result{};
  result.step = steps_done() + 1;
  result.lr = learning_rate(config_, steps_done());
  for (size_t u = 0; u < gradient_offsets_.size(); ++u) result.trained.push_back(selected[selectable_.of(u)]);

  int64_t count = 0;   // targets, pairs or rows: the loss is their mean, gradients are sums over them
  double squares = 0;  // of the gradients
  const auto finish_gradients = [&](size_t unit) {
    add_proximal(unit, count);
    const double sum = kernels().sum_of_squares(gradients(unit), static_cast<int64_t>(trained(unit).size()));
    must_be_finite(sum);
    squares += sum;
    ++result.backward_units;
  };
  std::function<void(size_t)> update_at_once;
  if (config_.immediate_update()) {
    update_at_once = [&](size_t unit) {
      finish_gradients(unit);
      update(unit, gradients(unit), result.lr, 1.0 / static_cast<double>(count));
    };
  }

  for (int64_t micro = 0; micro < config_.grad_accum; ++micro) {
    next_batch(data, micro);
    count += count_of(batch_, config_.loss);
    if (micro + 1 == config_.grad_accum && count == 0) {
      fail(data.path(), ": a step has no target; every row must have at least one");
    }
    result.sums += accumulate(batch_, selected, micro == 0, update_at_once);
    result.tokens += batch_.size();
  }
  result.loss = result.sums.loss / static_cast<double>(count);
  must_be_finite(result.loss);
  if (!config_.immediate_update()) {
    for (size_t u = 0; u < result.trained.size(); ++u) {
      if (result.trained[u]) finish_gradients(u);
    }
  }
  result.grad_norm = std::sqrt(squares) / static_cast<double>(count);
  update_units(result, clip_factor(result.grad_norm) / static_cast<double>(count));
  data.drop();  // or an epoch would leave the whole file resident
  losses_.push_back(result.loss);
  targets_seen_ += count;
  return result;
}

void Trainer::open_data(const TokenFile& data) {
  if (order_.sequences() != data.sequences()) {
    order_ = TokenOrder(data.sequences(), static_cast<uint64_t>(config_.seed));
  }
  data_ = &data;
  if (references_ && !references_->is_of(data)) references_.reset();
  const bool repeats = config_.steps * config_.grad_accum * config_.batch_size > data.sequences();
  if (needs_reference(config_.loss) && repeats && !config_.offload_folder.empty() && !references_) {
    references_.emplace(config_.offload_folder, data);
  }
  if (config_.cache_prefix && !(prefix_ && prefix_->is_of(data))) {
    prefix_.emplace(config_.offload_folder, data, model_.bundle().hidden_size);
  }
}

void Trainer::next_batch(const TokenFile& data, int64_t micro) {
  const int64_t first = (steps_done() * config_.grad_accum + micro) * config_.batch_size;
  batch_.clear();
  for (int64_t i = 0; i < config_.batch_size; ++i) data.append(order_.at(first + i), batch_);
}

void Trainer::next_batch_with_target(const TokenFile& data) {
  for (int64_t micro = 0; micro < config_.grad_accum; ++micro) {
    next_batch(data, micro);
    if (batch_.target_count > 0) return;
  }
}

void Trainer::must_be_finite(double value) const {
  if (!std::isfinite(value)) fail("step ", steps_done() + 1, ": the loss is not finite; lower lr");
}

double Trainer::clip_factor(double grad_norm) const {
  return config_.max_grad_norm > 0 ? std::min(1.0, config_.max_grad_norm / (grad_norm + 1e-6)) : 1.0;
}

void Trainer::update_units(const StepResult& result, double gradient_scale) {
  const bool others_stay = config_.unselected == Unselected::kSkip || config_.schedule.rule->rest != Rest::kIdentity;
  for (size_t u = 0; u < result.trained.size(); ++u) {
    if (result.trained[u] ? config_.immediate_update() : others_stay) continue;
    update(u, result.trained[u] ? gradients(u) : nullptr, result.lr, gradient_scale);
  }
}

}  // namespace mft
