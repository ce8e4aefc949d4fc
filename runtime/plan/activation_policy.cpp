#include "runtime/plan/activation_policy.h"

#include <algorithm>
#include <functional>

#include "runtime/config/arithmetic.h"
#include "runtime/model/moments.h"
#include "runtime/plan/selectable.h"
#include "runtime/platform/threads.h"

namespace mft {
namespace {

// What starting the threads, loading the methods and the heap add after planning; measured, with a margin: anonymous
// pages, and pages of code and program.
constexpr uint64_t kHeapGrowth = uint64_t{3} << 20;
constexpr uint64_t kCodeGrowth = uint64_t{4} << 20;
// What a run remembers of each step and of each validation, and tells at its end, in numbers and as text.
constexpr uint64_t kStepHistory = 80;
constexpr uint64_t kValidationHistory = 400;
// What a sweep over the head leaves resident for each thread, and two of them a few rows of the embedding: the page
// cache may hold pieces of 2 MB, which come into the process as a whole.
constexpr uint64_t kSweepWindow = uint64_t{9} << 19;
// Of a phone's flash, which writes slower than it reads: slow enough that nothing is offloaded to make room for
// activations.
constexpr double kOffloadBytesPerSecond = 0.5e9;
// Attention's backward has five products, its forward two.
constexpr double kAttentionBackward = 2.5;

uint64_t round_to_pages(uint64_t bytes) { return (bytes + page_bytes() - 1) / page_bytes() * page_bytes(); }

uint64_t history_bytes(const TrainConfig& config) {
  const uint64_t steps = static_cast<uint64_t>(config.steps);
  const uint64_t validations = config.eval_every > 0 ? steps / static_cast<uint64_t>(config.eval_every) + 1 : 0;
  return round_to_pages(steps * kStepHistory + validations * kValidationHistory);
}

bool any(const std::vector<int64_t>& stored) {
  return std::any_of(stored.begin(), stored.end(), [](int64_t n) { return n > 0; });
}

/// Tokens of a method's calls.
struct CallTokens {
  int64_t used;
  int64_t most;  // that it can take
};

/// Bytes of the arena that methods touch: of each tensor the beginning, in proportion to the most that its method
/// takes.
uint64_t arena_bytes(const Program& program, const std::map<std::string, CallTokens>& methods) {
  std::vector<std::pair<uint64_t, uint64_t>> touched;
  for (const auto& [method, tokens] : methods) {
    const uint64_t used = static_cast<uint64_t>(tokens.used), all = static_cast<uint64_t>(tokens.most);
    for (const ArenaTensor& tensor : program.arena_tensors(method)) {
      const uint64_t begin = tensor.offset / page_bytes() * page_bytes();
      touched.emplace_back(begin, round_to_pages(tensor.offset + (tensor.bytes * used + all - 1) / all));
    }
  }
  std::sort(touched.begin(), touched.end());
  uint64_t total = 0, covered = 0;
  for (const auto& [begin, end] : touched) {
    if (end <= covered) continue;
    total += end - std::max(begin, covered);
    covered = end;
  }
  return total;
}

/// The largest sum over `count` of the layers, or units, given each one's number.
template <typename T>
T most_of(std::vector<T> numbers, int64_t count) {
  std::sort(numbers.begin(), numbers.end(), std::greater<T>());
  T sum = 0;
  for (size_t i = 0; i < std::min(numbers.size(), static_cast<size_t>(count)); ++i) sum += numbers[i];
  return sum;
}

/// Tells times of a run's micro-batch.
class Times {
 public:
  Times(const TrainConfig& config, const Bundle& bundle, const Throughput& throughput)
      : tokens_(config.tokens()), seq_len_(config.seq_len), bundle_(bundle), throughput_(throughput) {}

  /// Of so many operations of a unit in calls of up to `call` tokens, with `attention` times those of attention's
  /// forward.
  double unit(const Flops& flops, int64_t call, double attention = 1) const {
    const double tokens = static_cast<double>(tokens_), weights = flops.linear / 2;
    const double hidden = static_cast<double>(std::max<int64_t>(1, bundle_.hidden_size));
    return flops.linear * tokens / throughput_.linear +
           flops.quadratic * tokens * static_cast<double>(seq_len_) * attention / throughput_.attention +
           weights * static_cast<double>(ceil_div(tokens_, call)) / throughput_.decoded +
           weights / hidden * tokens /
               throughput_.elements;  // each row of weights makes a number that elementwise ops take
  }

  /// Of so many operations a token of the head.
  double head(double flops) const {
    const double weights = static_cast<double>(bundle_.hidden_size) * static_cast<double>(bundle_.vocab_size);
    const int64_t call = std::max<int64_t>(1, bundle_.head_tokens);
    return flops * static_cast<double>(tokens_) / throughput_.linear +
           weights * static_cast<double>(ceil_div(tokens_, call)) / throughput_.decoded;
  }

 private:
  const int64_t tokens_, seq_len_;
  const Bundle& bundle_;
  const Throughput& throughput_;
};

/// The bundle's units in groups, for steps that select up to `selected` of what can be selected.
std::vector<UnitGroup> unit_groups(const Model& model, const Times& times, int64_t tokens, int64_t mlp_tokens,
                                   const Selectable& selectable, int64_t selected) {
  const Bundle& b = model.bundle();
  std::vector<UnitGroup> groups;
  for (size_t k = 0; k < b.kinds.size(); ++k) {
    const UnitKind& kind = b.kinds[k];
    const uint64_t saved = model.saved_bytes(kind, tokens, mlp_tokens);
    const double seconds = times.unit(kind.recompute_flops, kind.call_tokens(mlp_tokens));
    auto group = std::find_if(groups.begin(), groups.end(), [&](const UnitGroup& g) {
      return g.saved == saved && g.reads_x == kind.backward_reads_x && g.seconds == seconds;
    });
    if (group == groups.end()) {
      groups.push_back({kind.name, std::vector<bool>(b.kinds.size()), 0, saved, kind.backward_reads_x, seconds});
      group = groups.end() - 1;
    }
    group->kinds[k] = true;
  }
  for (UnitGroup& group : groups) {
    std::vector<int64_t> units(static_cast<size_t>(selectable.count()));
    for (size_t u = 0; u < b.units.size(); ++u) units[selectable.of(u)] += group.kinds[b.units[u].kind];
    group.units = most_of(units, selected);
  }
  return groups;
}

}  // namespace

PolicyCosts::PolicyCosts(const Model& model, const TrainConfig& config, const ProcessMemory& now,
                         const Throughput& throughput, int64_t mlp_tokens)
    : model_(model), config_(config), throughput_(throughput), mlp_tokens_(mlp_tokens) {
  const Bundle& b = model.bundle();
  const Times times(config, b, throughput_);
  const Selectable selectable(b, config.schedule);
  const int64_t tokens = config.tokens(), run = config.schedule.most_with_backward(selectable.count());
  const int64_t trained = config.schedule.most_selected(selectable.count());
  activation_ = model.activation_bytes(tokens);
  groups_ = unit_groups(model, times, tokens, mlp_tokens, selectable, run);
  for (size_t g = 0; g < groups_.size(); ++g) by_saved_.push_back(g);
  std::stable_sort(by_saved_.begin(), by_saved_.end(),
                   [this](size_t a, size_t b) { return groups_[a].saved > groups_[b].saved; });
  std::vector<uint64_t> adapter(static_cast<size_t>(selectable.count()));
  std::vector<int64_t> units(adapter.size());
  uint64_t trained_adapter = 0, largest_adapter = 0, largest_weights = 0;
  bool split = false;
  const double share = static_cast<double>(run) / static_cast<double>(selectable.count());
  const double forwards = config.loss == Loss::kDpo ? 2 : 1;  // the reference's too
  for (size_t u = 0; u < b.units.size(); ++u) {
    const uint64_t size = model.layout().trained(u, config.lora_train).size() * sizeof(float);
    adapter[selectable.of(u)] += size;
    trained_adapter += size;
    ++units[selectable.of(u)];
    largest_adapter = std::max(largest_adapter, size);
    largest_weights = std::max<uint64_t>(largest_weights, model.weight_bytes(u));
    weight_bytes_ += model.weight_bytes(u);
    passed_bytes_ += (forwards + share) * static_cast<double>(model.weight_bytes(u));
    const UnitKind& kind = b.kind_of(u);
    split = split || tokens > kind.call_tokens(mlp_tokens);
    const auto passes = [&](int64_t call) {
      return forwards * times.unit(kind.flops, call) + share * times.unit(kind.flops, call, kAttentionBackward);
    };
    least_seconds_ += passes(kind.tokens);
    stored_seconds_ += passes(kind.call_tokens(mlp_tokens));
  }
  const uint64_t head_bytes = model.weight_bytes(b.units.size());
  weight_bytes_ += head_bytes;
  passed_bytes_ += forwards * static_cast<double>(head_bytes);
  const double head = times.head(b.head_flops * (1 + (forwards - 1) / 2));  // no gradient of the reference
  least_seconds_ += head;
  stored_seconds_ += head;
  selected_units_ = most_of(units, run);
  // Measuring sensitivities reads back what it offloaded.
  least_buffers_ = selectable.units ? 3 : 2;

  const uint64_t threads = std::max<uint64_t>(2, static_cast<uint64_t>(thread_count()));
  set(Component::kCode, now.rss - now.anon + kCodeGrowth);
  set(Component::kWeightsWindow, std::max(largest_weights, threads * kSweepWindow));
  set(Component::kHeap, now.anon + kHeapGrowth + history_bytes(config));
  set(Component::kLora, model.layout().size * sizeof(float));
  set(Component::kNoAdapter, config.loss == Loss::kDpo ? model.no_adapter_bytes() : 0);
  set(Component::kStart, config.proximal_mu > 0 ? trained_adapter : 0);
  set(Component::kGradients, config.immediate_update() ? largest_adapter : most_of(adapter, trained));
  set(Component::kSpareGradients, config.grad_accum > 1 || split || trained < run ? largest_adapter : 0);
  set(Component::kOptimizer, Moments(model.layout(), config.lora_train, config.optimizer).bytes());
  const uint64_t scratch = model.scratch_bytes(tokens, compute_of(config), 0);
  staging_ = model.scratch_bytes(tokens, compute_of(config), model.staging_bytes(tokens, mlp_tokens)) - scratch;
  set(Component::kKernelScratch, scratch);
  for (const uint64_t bytes : fixed_) fixed_total_ += bytes;
}

ActivationPolicy PolicyCosts::of(const std::vector<int64_t>& stored) {
  ActivationPolicy m;
  m.stored = stored;
  m.buffers = least_buffers_;
  m.arena = arena(stored);
  int64_t again = 0, beside = 0;
  m.seconds = stored_seconds_;
  double seconds_again = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const UnitGroup& group = groups_[g];
    again += group.units - stored[g];
    if (group.reads_x) beside += stored[g];
    seconds_again += static_cast<double>(group.units - stored[g]) * group.seconds;
  }
  // Where layers differ, or units are selected one by one, no step selects the most of every group.
  int64_t selected = selected_units_;
  for (const size_t g : by_saved_) {
    const int64_t units = std::min(stored[g], selected);
    m.saved += static_cast<uint64_t>(units) * groups_[g].saved;
    selected -= units;
  }
  beside = std::min(beside, selected_units_);
  if (again > selected_units_) {
    seconds_again *= static_cast<double>(selected_units_) / static_cast<double>(again);
    again = selected_units_;
  }
  m.seconds += seconds_again;
  const uint64_t before = fixed_total_ + m.arena + (any(stored) ? staging_ : 0) + m.saved +
                          static_cast<uint64_t>(least_buffers_ + beside) * activation_;
  int64_t in_memory = again;
  if (config_.budget > 0 && !config_.offload_folder.empty()) {
    const int64_t room = static_cast<int64_t>(config_.budget > before ? (config_.budget - before) / activation_ : 0);
    if (room < again) {
      m.buffers = 3;
      in_memory = std::max<int64_t>(0, room - (m.buffers - least_buffers_));
    }
  }
  m.checkpoints = in_memory + beside;
  m.offloaded = again - in_memory;
  m.total = before + static_cast<uint64_t>(m.buffers - least_buffers_ + in_memory) * activation_;
  m.seconds += static_cast<double>(m.offloaded) * 2.0 * static_cast<double>(activation_) / kOffloadBytesPerSecond;
  if (config_.budget > 0) {
    // What is left of the budget keeps weights in memory. Next to nothing is left where something is offloaded.
    const uint64_t left = m.offloaded > 0 || !fits(m) ? 0 : config_.budget - m.total;
    const double kept = std::min(1.0, static_cast<double>(left) / static_cast<double>(weight_bytes_));
    m.read_seconds = (1 - kept) * passed_bytes_ / throughput_.read;
    m.seconds += m.read_seconds;
  }
  return m;
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
  if (config_.eval_every > 0 || config_.loss == Loss::kDpo) takes("head_loss", b.head_tokens, b.head_tokens);
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
