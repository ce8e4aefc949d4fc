#include "runtime/core/plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "runtime/core/error.h"
#include "runtime/core/moments.h"
#include "runtime/core/process_memory.h"
#include "runtime/kernels/threads.h"

namespace mft {
namespace {

constexpr uint64_t kMegabyte = 1000 * 1000;
constexpr uint64_t kPage = 4096;
// What starting the threads, loading the methods and the heap add after planning; measured, with a margin: anonymous
// pages, and pages of code and program.
constexpr uint64_t kHeapGrowth = uint64_t{3} << 20;
constexpr uint64_t kCodeGrowth = uint64_t{4} << 20;
// What a sweep over the head leaves resident for each thread, and two of them a few rows of the embedding: the page
// cache may hold pieces of 2 MB, which come into the process as a whole.
constexpr uint64_t kSweepWindow = uint64_t{9} << 19;
// Rates for comparing mixes, not for telling times: of the kernels, and of a phone's flash, slow enough that nothing is
// spilled to make room for activations.
constexpr double kFlopsPerSecond = 150e9;
constexpr double kSpillBytesPerSecond = 0.5e9;

/// What the choice of a mix depends on, gathered once.
struct Facts {
  const Model& model;
  const TrainConfig& config;
  int64_t layers;          // selected by a step, at most
  uint64_t activation;     // bytes of x
  uint64_t saved[2] = {};  // bytes a stored unit leaves: attention, MLP
  bool reads_x[2] = {};    // whether it keeps its checkpoint besides
  double again[2] = {};    // seconds to compute a unit's forward once more
  double base = 0;         // seconds of a step with everything stored
  std::vector<Plan::Component> fixed{};
  std::map<std::set<std::string>, uint64_t> arenas{};  // by the methods in use
};

uint64_t round_to_pages(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

/// Bytes of the arena that `methods` touch in calls of up to `tokens` tokens.
uint64_t arena_bytes(const Bundle& bundle, const std::set<std::string>& methods, int64_t tokens) {
  std::vector<std::pair<uint64_t, uint64_t>> touched;
  for (const std::string& method : methods) {
    const auto found = bundle.arena.find(method);
    if (found == bundle.arena.end()) fail("bundle.json: no arena of method ", method);
    const bool mlp = method.compare(0, 3, "mlp") == 0;
    const int64_t limit = mlp ? bundle.mlp_tokens : method == "head" ? bundle.head_tokens : bundle.max_seq_len;
    const uint64_t most = static_cast<uint64_t>(limit), used = static_cast<uint64_t>(std::min(limit, tokens));
    for (const ArenaTensor& tensor : found->second) {
      const uint64_t begin = tensor.offset / kPage * kPage;
      touched.emplace_back(begin, round_to_pages(tensor.offset + (tensor.bytes * used + most - 1) / most));
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

/// Multiply-adds of a unit's forward, twice; `again`: without its last linear, whose output no gradient needs.
double forward_flops(const Bundle& b, const UnitInfo& unit, int64_t tokens, bool again) {
  const double t = static_cast<double>(tokens), hidden = static_cast<double>(b.hidden_size);
  const double queries = static_cast<double>(b.num_heads * b.head_dim);
  const double keys = static_cast<double>(b.num_kv_heads * b.head_dim);
  const double inner = static_cast<double>(b.intermediate_size);
  if (!unit.attention) return 2 * t * hidden * inner * (again ? 2 : 3);
  return 2 * t * hidden * (queries * (again ? 1 : 2) + 2 * keys) + 2 * t * t * queries;
}

Facts gather(const Model& model, const TrainConfig& config) {
  const Bundle& b = model.bundle();
  const int64_t tokens = config.tokens();
  Facts f{model, config, config.schedule.most_selected(b.num_layers), model.activation_bytes(tokens)};
  uint64_t largest_unit = 0, largest_layer = 0, largest_weights = 0;
  std::map<int64_t, uint64_t> layer_sizes;
  const double share = static_cast<double>(f.layers) / static_cast<double>(b.num_layers);
  for (size_t u = 0; u < b.units.size(); ++u) {
    const UnitInfo& unit = b.units[u];
    const uint64_t size = model.layout().range(u).size() * sizeof(float);
    largest_unit = std::max(largest_unit, size);
    largest_layer = std::max(largest_layer, layer_sizes[unit.layer] += size);
    largest_weights = std::max<uint64_t>(largest_weights, model.weight_bytes(u));
    const int mlp = unit.attention ? 0 : 1;
    f.saved[mlp] = std::max<uint64_t>(f.saved[mlp], model.saved_bytes(u, tokens));
    f.reads_x[mlp] = f.reads_x[mlp] || unit.backward_reads_x;
    f.again[mlp] = std::max(f.again[mlp], forward_flops(b, unit, tokens, true) / kFlopsPerSecond);
    f.base += forward_flops(b, unit, tokens, false) / kFlopsPerSecond * (1 + share);
  }
  f.base += 4.0 * static_cast<double>(tokens * b.hidden_size) * static_cast<double>(b.vocab_size) / kFlopsPerSecond;

  const uint64_t adapter = model.layout().size * sizeof(float);
  const uint64_t selected = std::min(adapter, static_cast<uint64_t>(f.layers) * largest_layer);
  const bool spare = config.grad_accum > 1 || tokens > b.mlp_tokens;
  const uint64_t sweep = std::max<uint64_t>(2, static_cast<uint64_t>(thread_count())) * kSweepWindow;
  const ProcessMemory now = process_memory();
  f.fixed = {
      {"code", now.rss - now.anon + kCodeGrowth, false},
      {"weights_window", std::max(largest_weights, sweep), false},
      {"heap", now.anon + kHeapGrowth, true},
      {"lora", adapter, true},
      {"gradients", config.immediate_update() ? largest_unit : selected, true},
      {"spare_gradients", spare ? largest_unit : 0, true},
      {"optimizer", Moments(model.layout(), config.optimizer).bytes(), true},
      {"kernel_scratch", model.scratch_bytes(tokens), true},
  };
  return f;
}

/// The plan that stores `attn` and `mlp` units and keeps as many of the others' checkpoints in memory as there is room.
Plan mix(Facts& f, int64_t attn, int64_t mlp) {
  const Bundle& b = f.model.bundle();
  const int64_t tokens = f.config.tokens();
  Plan plan;
  plan.components = f.fixed;
  plan.stored_attn = attn;
  plan.stored_mlp = mlp;
  const int64_t again = 2 * f.layers - attn - mlp;
  std::set<std::string> methods{"embed", "head"};
  for (const UnitInfo& unit : b.units) {
    const bool some = unit.attention ? attn > 0 : mlp > 0, all = (unit.attention ? attn : mlp) == f.layers;
    methods.insert(unit.kind + "_forward");
    if (some) methods.insert({unit.kind + "_forward_save", unit.kind + "_backward"});
    if (!all) methods.insert(unit.kind + "_backward_recompute");
  }
  const bool stored = attn + mlp > 0;
  const auto [arena, is_new] = f.arenas.try_emplace(methods, 0);
  if (is_new) arena->second = arena_bytes(b, methods, tokens);
  plan.components.push_back({"arena", arena->second, true});
  plan.components.push_back({"staging", stored ? f.model.staging_bytes(tokens) : 0, true});
  plan.components.push_back(
      {"saved_activations", static_cast<uint64_t>(attn) * f.saved[0] + static_cast<uint64_t>(mlp) * f.saved[1], true});
  const int64_t beside = (f.reads_x[0] ? attn : 0) + (f.reads_x[1] ? mlp : 0);
  const uint64_t budget = f.config.budget, before = plan.total() + static_cast<uint64_t>(2 + beside) * f.activation;
  int64_t in_memory = again, buffers = 2;
  if (budget > 0 && !f.config.spill_folder.empty()) {
    const int64_t room = static_cast<int64_t>(budget > before ? (budget - before) / f.activation : 0);
    if (room < again) {
      buffers = 3;  // one for reading back
      in_memory = std::max<int64_t>(0, room - 1);
    }
  }
  plan.components.push_back({"activations", static_cast<uint64_t>(buffers) * f.activation, true});
  plan.checkpoints = in_memory + beside;
  plan.spilled = again - in_memory;
  plan.components.push_back({"checkpoints", static_cast<uint64_t>(plan.checkpoints) * f.activation, true});
  const double seconds =
      f.base + static_cast<double>(f.layers - attn) * f.again[0] + static_cast<double>(f.layers - mlp) * f.again[1] +
      static_cast<double>(plan.spilled) * 2.0 * static_cast<double>(f.activation) / kSpillBytesPerSecond;
  plan.relative_time = seconds / f.base;
  return plan;
}

/// Spends what is left of the budget on keeping weights mapped from step to step.
void keep_weights(const Facts& f, Plan& plan) {
  const size_t units = f.model.bundle().units.size();
  uint64_t kept = 0;
  while (plan.resident <= units) {
    const uint64_t next = f.model.weight_bytes(plan.resident);
    if (plan.total() + kept + next > f.config.budget) break;
    kept += next;
    ++plan.resident;
  }
  plan.components.push_back({"resident_weights", kept, false});
}

}  // namespace

uint64_t Plan::bytes(const std::string& component) const {
  for (const Component& c : components) {
    if (c.name == component) return c.bytes;
  }
  return 0;
}

uint64_t Plan::total() const {
  uint64_t sum = 0;
  for (const Component& c : components) sum += c.bytes;
  return sum;
}

uint64_t Plan::anonymous() const {
  uint64_t sum = 0;
  for (const Component& c : components) sum += c.anonymous ? c.bytes : 0;
  return sum;
}

Plan plan_training(const Model& model, const TrainConfig& config) {
  check(config, model.bundle().max_seq_len);
  Facts facts = gather(model, config);
  const uint64_t budget = config.budget;
  const int64_t stored = config.backward == Backward::kStore ? facts.layers : 0;
  Plan best = mix(facts, stored, stored);
  if (budget == 0) return best;
  const int64_t most = config.backward == Backward::kAuto ? facts.layers : -1;
  for (int64_t attn = 0; attn <= most; ++attn) {
    for (int64_t mlp = 0; mlp <= most; ++mlp) {
      Plan plan = mix(facts, attn, mlp);
      const bool fits = plan.total() <= budget, best_fits = best.total() <= budget;
      const bool better = fits && best_fits ? plan.relative_time < best.relative_time
                                            : fits || (!best_fits && plan.total() < best.total());
      if (better) best = std::move(plan);
    }
  }
  keep_weights(facts, best);
  return best;
}

void check_budget(const Plan& plan, uint64_t budget) {
  if (budget == 0 || plan.total() <= budget) return;
  fail("budget ", budget / kMegabyte, "MB is too small: this run needs ", plan.total() / kMegabyte + 1,
       "MB; raise --budget, or lower --seq-len, --batch-size or --ratio");
}

int64_t longest_sequence(const Model& model, TrainConfig config) {
  const int64_t most = model.bundle().max_seq_len / config.batch_size;
  const auto fits = [&](int64_t tokens) {
    config.seq_len = tokens;
    return config.budget == 0 || plan_training(model, config).total() <= config.budget;
  };
  if (most < 1 || !fits(1)) return 0;
  int64_t low = 1, high = most;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace mft
