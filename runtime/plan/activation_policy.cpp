#include "runtime/plan/activation_policy.h"

#include <algorithm>

#include "runtime/config/arithmetic.h"
#include "runtime/model/moments.h"
#include "runtime/plan/arena.h"
#include "runtime/platform/pages.h"
#include "runtime/platform/threads.h"

namespace mft {
namespace {

// Threads, methods and the heap add this after planning: anonymous pages, and pages of code and program. Measured, with
// a margin.
constexpr uint64_t kHeapGrowth = uint64_t{3} << 20;
constexpr uint64_t kCodeGrowth = uint64_t{4} << 20;
// Bytes that a run keeps of each step and of each validation, in numbers and as the text of its last event.
constexpr uint64_t kStepHistory = 80;
constexpr uint64_t kValidationHistory = 400;
// A pass over the head leaves this resident for each thread, and a few rows of the embedding leave twice as much: the
// page cache may hold pieces of 2 MB, which come into the process as a whole.
constexpr uint64_t kSweepWindow = uint64_t{9} << 19;
// A phone's flash, which writes slower than it reads. At this rate nothing is offloaded to make room for activations.
constexpr double kOffloadBytesPerSecond = 0.5e9;

/// Bytes of the heap for the batches that a step or a validation reads at once, with their losses. Measured, with a
/// margin: KTO compares rows with mismatched ones, and other losses of feedback with a second answer.
uint64_t batch_bytes(const TrainConfig& config) {
  const uint64_t a_token = config.loss == Loss::kKto ? 256 : config.loss == Loss::kSft ? 64 : 128;
  return round_to_pages(static_cast<uint64_t>(config.tokens()) * a_token);
}

uint64_t history_bytes(const TrainConfig& config) {
  const uint64_t steps = static_cast<uint64_t>(config.steps);
  const uint64_t validations = config.eval_every > 0 ? steps / static_cast<uint64_t>(config.eval_every) + 1 : 0;
  return round_to_pages(steps * kStepHistory + validations * kValidationHistory);
}

bool any(const std::vector<int64_t>& stored) {
  return std::any_of(stored.begin(), stored.end(), [](int64_t n) { return n > 0; });
}

/// Passes forward of a step of the first epoch: that of the reference, and KTO's two of mismatched rows.
double forwards_of(const TrainConfig& config) {
  return config.loss == Loss::kKto ? 4 : needs_reference(config.loss) ? 2 : 1;
}

}  // namespace

PolicyCosts::PolicyCosts(const Model& model, const TrainConfig& config, const ProcessMemory& now,
                         const Throughput& throughput, int64_t mlp_tokens)
    : model_(model), config_(config), throughput_(throughput), mlp_tokens_(mlp_tokens) {
  const Bundle& b = model.bundle();
  const UnitTimes times(config, b, throughput_);
  const Selectable selectable(b, config.schedule);
  const int64_t tokens = config.tokens(), run = config.schedule.most_with_backward(selectable.count());
  activation_ = model.activation_bytes(tokens);
  groups_ = unit_groups(model, times, tokens, mlp_tokens, selectable, run);
  for (size_t g = 0; g < groups_.size(); ++g) by_saved_.push_back(g);
  std::stable_sort(by_saved_.begin(), by_saved_.end(),
                   [this](size_t a, size_t b) { return groups_[a].saved > groups_[b].saved; });
  std::vector<int64_t> units(static_cast<size_t>(selectable.count()));
  for (size_t u = 0; u < b.units.size(); ++u) ++units[selectable.of(u)];
  selected_units_ = most_of(units, run);
  // Measuring sensitivities reads back what it offloaded.
  least_buffers_ = selectable.units ? 3 : 2;
  add_times(times, static_cast<double>(run) / static_cast<double>(selectable.count()));
  set_fixed(now, selectable, run);
}

/// Adds up times and weights of a step whose backward runs through `share` of the units.
void PolicyCosts::add_times(const UnitTimes& times, double share) {
  const Bundle& b = model_.bundle();
  const double forwards = forwards_of(config_);
  for (size_t u = 0; u < b.units.size(); ++u) {
    const UnitKind& kind = b.kind_of(u);
    weight_bytes_ += model_.weight_bytes(u);
    passed_bytes_ += (forwards + share) * static_cast<double>(model_.weight_bytes(u));
    const auto passes = [&](int64_t call) {
      return forwards * times.unit(kind.flops, call) + share * times.unit(kind.flops, call, kAttentionBackward);
    };
    least_seconds_ += passes(kind.tokens);
    stored_seconds_ += passes(kind.call_tokens(mlp_tokens_));
  }
  const uint64_t head_bytes = model_.weight_bytes(b.units.size());
  weight_bytes_ += head_bytes;
  passed_bytes_ += forwards * static_cast<double>(head_bytes);
  const double head = times.head(b.head_flops * (1 + (forwards - 1) / 2));  // no gradient of the reference
  least_seconds_ += head;
  stored_seconds_ += head;
}

/// The components that no policy changes. A step runs the backward of at most `run` of what can be selected.
void PolicyCosts::set_fixed(const ProcessMemory& now, const Selectable& selectable, int64_t run) {
  const Bundle& b = model_.bundle();
  const int64_t tokens = config_.tokens();
  std::vector<uint64_t> adapter(static_cast<size_t>(selectable.count()));  // bytes that are trained
  uint64_t trained_adapter = 0, largest_adapter = 0, largest_weights = 0;
  bool splits_calls = false;  // a unit's gradients come from several calls
  for (size_t u = 0; u < b.units.size(); ++u) {
    const uint64_t size = model_.layout().trained(u, config_.lora_train).size() * sizeof(float);
    adapter[selectable.of(u)] += size;
    trained_adapter += size;
    largest_adapter = std::max(largest_adapter, size);
    largest_weights = std::max<uint64_t>(largest_weights, model_.weight_bytes(u));
    splits_calls = splits_calls || tokens > b.kind_of(u).call_tokens(mlp_tokens_);
  }
  const int64_t trained = config_.schedule.most_selected(selectable.count());
  const bool adds_up = config_.grad_accum > 1 || splits_calls || trained < run;
  const uint64_t threads = std::max<uint64_t>(2, static_cast<uint64_t>(thread_count()));
  set(Component::kCode, now.rss - now.anon + kCodeGrowth);
  largest_weights = std::max<uint64_t>(largest_weights, model_.per_layer_weight_bytes());
  set(Component::kWeightsWindow, std::max(largest_weights, threads * kSweepWindow));
  set(Component::kHeap, now.anon + kHeapGrowth + batch_bytes(config_) + history_bytes(config_));
  set(Component::kLora, model_.layout().size * sizeof(float));
  set(Component::kNoAdapter, needs_reference(config_.loss) ? model_.no_adapter_bytes() : 0);
  set(Component::kSideTensors, model_.side_tensor_bytes(tokens));
  set(Component::kStart, config_.proximal_mu > 0 ? trained_adapter : 0);
  set(Component::kGradients, config_.immediate_update() ? largest_adapter : most_of(adapter, trained));
  set(Component::kSpareGradients, adds_up ? largest_adapter : 0);
  set(Component::kOptimizer, Moments(model_.layout(), config_.lora_train, config_.optimizer).bytes());
  const uint64_t scratch = model_.scratch_bytes(tokens, compute_of(config_), 0);
  staging_ = model_.scratch_bytes(tokens, compute_of(config_), model_.staging_bytes(tokens, mlp_tokens_)) - scratch;
  set(Component::kKernelScratch, scratch);
  for (const uint64_t bytes : fixed_) fixed_total_ += bytes;
}

ActivationPolicy PolicyCosts::of(const std::vector<int64_t>& stored) {
  ActivationPolicy m;
  m.stored = stored;
  m.buffers = least_buffers_;
  m.arena = arena(stored);
  m.saved = saved_bytes(stored);
  const Recomputed again = recomputed(stored);
  const uint64_t before = fixed_total_ + m.arena + (any(stored) ? staging_ : 0) + m.saved +
                          static_cast<uint64_t>(least_buffers_ + again.beside) * activation_;
  // As many inputs stay in memory as there is room for; reading offloaded ones back takes a third buffer.
  int64_t in_memory = again.units;
  if (config_.budget > 0 && !config_.offload_folder.empty()) {
    const int64_t room = static_cast<int64_t>(config_.budget > before ? (config_.budget - before) / activation_ : 0);
    if (room < again.units) {
      m.buffers = 3;
      in_memory = std::max<int64_t>(0, room - (m.buffers - least_buffers_));
    }
  }
  m.checkpoints = in_memory + again.beside;
  m.offloaded = again.units - in_memory;
  m.total = before + static_cast<uint64_t>(m.buffers - least_buffers_ + in_memory) * activation_;
  m.seconds = stored_seconds_ + again.seconds +
              static_cast<double>(m.offloaded) * 2.0 * static_cast<double>(activation_) / kOffloadBytesPerSecond;
  if (config_.budget > 0) {
    m.read_seconds = read_seconds(m);
    m.seconds += m.read_seconds;
  }
  return m;
}

/// Units that do not store, and stored ones that keep their input besides. If layers differ, or units are selected one
/// by one, no step selects the most of every group, so both are at most the units of a step.
PolicyCosts::Recomputed PolicyCosts::recomputed(const std::vector<int64_t>& stored) const {
  Recomputed again;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const UnitGroup& group = groups_[g];
    again.units += group.units - stored[g];
    if (group.reads_x) again.beside += stored[g];
    again.seconds += static_cast<double>(group.units - stored[g]) * group.seconds;
  }
  again.beside = std::min(again.beside, selected_units_);
  if (again.units > selected_units_) {
    again.seconds *= static_cast<double>(selected_units_) / static_cast<double>(again.units);
    again.units = selected_units_;
  }
  return again;
}

/// Stored activations of a step at most: of the groups whose units store most, as far as a step selects units.
uint64_t PolicyCosts::saved_bytes(const std::vector<int64_t>& stored) const {
  uint64_t saved = 0;
  int64_t selected = selected_units_;
  for (const size_t g : by_saved_) {
    const int64_t units = std::min(stored[g], selected);
    saved += static_cast<uint64_t>(units) * groups_[g].saved;
    selected -= units;
  }
  return saved;
}

/// The rest of the budget keeps weights in memory, and a step reads the others. If inputs are offloaded, next to
/// nothing of the budget is left.
double PolicyCosts::read_seconds(const ActivationPolicy& policy) const {
  const uint64_t left = policy.offloaded > 0 || !fits(policy) ? 0 : config_.budget - policy.total;
  const double kept = std::min(1.0, static_cast<double>(left) / static_cast<double>(weight_bytes_));
  return (1 - kept) * passed_bytes_ / throughput_.read;
}

/// Bytes of the arena that the policy's methods touch.
uint64_t PolicyCosts::arena(const std::vector<int64_t>& stored) {
  std::vector<int> use;  // of each group: none, some or all of its units store
  for (size_t g = 0; g < groups_.size(); ++g) use.push_back(int{stored[g] > 0} + int{stored[g] == groups_[g].units});
  const auto [known, is_new] = arenas_.try_emplace(use, 0);
  if (!is_new) return known->second;
  const Bundle& b = model_.bundle();
  std::map<std::string, CallTokens> methods;
  const auto takes = [&](const std::string& method, int64_t used, int64_t most) {
    methods[method] = {std::min(used, config_.tokens()), most};
  };
  takes("embed", b.max_seq_len, b.max_seq_len);
  takes("head", b.head_tokens, b.head_tokens);
  if (b.per_layer.width > 0) takes("per_layer_inputs", b.per_layer.tokens, b.per_layer.tokens);
  if (config_.eval_every > 0 || needs_reference(config_.loss)) takes("head_loss", b.head_tokens, b.head_tokens);
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (size_t k = 0; k < b.kinds.size(); ++k) {
      if (!groups_[g].kinds[k]) continue;
      const UnitKind& kind = b.kinds[k];
      const auto calls = [&](const char* what) { takes(kind.name + what, kind.call_tokens(mlp_tokens_), kind.tokens); };
      calls("_forward");
      if (use[g] > 0) {
        calls("_forward_save");
        calls("_backward");
      }
      if (use[g] < 2 || config_.schedule.rule->drops_units) calls("_backward_recompute");
    }
  }
  return known->second = arena_bytes(model_.program(), methods);
}

}  // namespace mft
