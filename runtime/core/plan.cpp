#include "runtime/core/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "runtime/core/error.h"
#include "runtime/core/moments.h"
#include "runtime/core/process_memory.h"
#include "runtime/platform/threads.h"

namespace mft {
namespace {

constexpr uint64_t kMegabyte = 1000 * 1000;
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
constexpr double kDecodedPerSecond = 5e9;  // weights
constexpr double kSpillBytesPerSecond = 0.5e9;
// Around each number of stored units at which something changes, so many neighbours are tried too: what a unit saves is
// no multiple of a checkpoint, so the fastest number lies near a change, not always on it.
constexpr int64_t kNeighbours = 4;
// How many mixes of all groups but one are tried at once: all there are of today's models, else a grid of so many, and
// finer ones around the best of it.
constexpr double kGridPoints = 2000;

// Fewest tokens of an MLP's call: below, decoding its weights takes most of the time.
constexpr int64_t kFewestTokens = 32;

using Counts = std::vector<int64_t>;

uint64_t round_to_pages(uint64_t bytes) { return (bytes + page_bytes() - 1) / page_bytes() * page_bytes(); }

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

/// The largest sum over `count` of the layers, given each one's number.
template <typename T>
T most_of(std::vector<T> by_layer, int64_t count) {
  std::sort(by_layer.begin(), by_layer.end(), std::greater<T>());
  T sum = 0;
  for (size_t i = 0; i < std::min(by_layer.size(), static_cast<size_t>(count)); ++i) sum += by_layer[i];
  return sum;
}

/// To decode the weights behind so many operations again and again where a kind's calls take fewer tokens than they
/// can.
double decode_seconds(const UnitKind& kind, const Flops& flops, int64_t tokens, int64_t mlp_tokens) {
  const int64_t more = ceil_div(tokens, kind.call_tokens(mlp_tokens)) - ceil_div(tokens, kind.tokens);
  return static_cast<double>(more) * flops.at(1) / 2 / kDecodedPerSecond;
}

/// The bundle's units in groups, for steps that select up to `selected` layers.
std::vector<UnitGroup> unit_groups(const Model& model, int64_t tokens, int64_t mlp_tokens, int64_t selected) {
  const Bundle& b = model.bundle();
  std::vector<UnitGroup> groups;
  for (size_t k = 0; k < b.kinds.size(); ++k) {
    const UnitKind& kind = b.kinds[k];
    const uint64_t saved = model.saved_bytes(kind, tokens, mlp_tokens);
    const double seconds = kind.recompute_flops.at(tokens) / kFlopsPerSecond +
                           decode_seconds(kind, kind.recompute_flops, tokens, mlp_tokens);
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
    std::vector<int64_t> by_layer(static_cast<size_t>(b.num_layers));
    for (const UnitInfo& unit : b.units) by_layer[static_cast<size_t>(unit.layer)] += group.kinds[unit.kind];
    group.units = most_of(by_layer, selected);
  }
  return groups;
}

/// What of a mix takes memory and time.
struct Mix {
  Counts stored;
  uint64_t total = 0;  // bytes of everything but resident weights
  uint64_t arena = 0;
  uint64_t saved = 0;
  int64_t buffers = 2;  // of activations: two that units read and write in turn, one for reading back what was spilled
  int64_t checkpoints = 0;
  int64_t spilled = 0;
  double seconds = 0;
};

class Planner {
 public:
  Planner(const Model& model, const TrainConfig& config, const ProcessMemory& now, int64_t mlp_tokens)
      : model_(model), config_(config), mlp_tokens_(mlp_tokens) {
    const Bundle& b = model.bundle();
    const int64_t tokens = config.tokens(), layers = config.schedule.most_selected(b.num_layers);
    activation_ = model.activation_bytes(tokens);
    staging_ = model.staging_bytes(tokens, mlp_tokens);
    groups_ = unit_groups(model, tokens, mlp_tokens, layers);
    std::vector<uint64_t> adapter(static_cast<size_t>(b.num_layers));
    std::vector<int64_t> units(adapter.size());
    uint64_t largest_adapter = 0, largest_weights = 0;
    bool split = false;
    const double share = static_cast<double>(layers) / static_cast<double>(b.num_layers);
    for (size_t u = 0; u < b.units.size(); ++u) {
      const uint64_t size = model.layout().range(u).size() * sizeof(float);
      adapter[static_cast<size_t>(b.units[u].layer)] += size;
      ++units[static_cast<size_t>(b.units[u].layer)];
      largest_adapter = std::max(largest_adapter, size);
      largest_weights = std::max<uint64_t>(largest_weights, model.weight_bytes(u));
      const UnitKind& kind = b.kind_of(u);
      split = split || tokens > kind.call_tokens(mlp_tokens);
      base_seconds_ += kind.flops.at(tokens) / kFlopsPerSecond * (1 + share);
      more_seconds_ += decode_seconds(kind, kind.flops, tokens, mlp_tokens) * (1 + share);
    }
    base_seconds_ += b.head_flops * static_cast<double>(tokens) / kFlopsPerSecond;
    selected_units_ = most_of(units, layers);

    const uint64_t threads = std::max<uint64_t>(2, static_cast<uint64_t>(thread_count()));
    set(Component::kCode, now.rss - now.anon + kCodeGrowth);
    set(Component::kWeightsWindow, std::max(largest_weights, threads * kSweepWindow));
    set(Component::kHeap, now.anon + kHeapGrowth);
    set(Component::kLora, model.layout().size * sizeof(float));
    set(Component::kNoAdapter, config.loss == Loss::kDpo ? model.no_adapter_bytes() : 0);
    set(Component::kGradients, config.immediate_update() ? largest_adapter : most_of(adapter, layers));
    set(Component::kSpareGradients, config.grad_accum > 1 || split ? largest_adapter : 0);
    set(Component::kOptimizer, Moments(model.layout(), config.optimizer).bytes());
    set(Component::kKernelScratch, model.scratch_bytes(tokens, config.compute));
    for (const uint64_t bytes : fixed_) fixed_total_ += bytes;
  }

  /// The best of the mixes that the options allow.
  Mix best() {
    if (!config_.stored_units.empty()) return mix(given_counts());
    Counts none(groups_.size()), all;
    for (const UnitGroup& group : groups_) all.push_back(group.units);
    switch (config_.backward) {
      case Backward::kRecompute:
        return mix(none);
      case Backward::kStore:
        return mix(all);
      case Backward::kAuto:
        break;
    }
    if (config_.budget == 0) return mix(none);
    // The last group's number follows from the others' in a few tries, so the largest comes last.
    std::vector<size_t> order(groups_.size());
    for (size_t g = 0; g < order.size(); ++g) order[g] = g;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return groups_[a].units < groups_[b].units; });
    Mix best = mix(none);
    const int64_t steps =
        static_cast<int64_t>(std::pow(kGridPoints, 1 / std::max(1.0, static_cast<double>(order.size()) - 1)));
    std::vector<Grid> grid;
    for (const int64_t units : all) grid.push_back({0, units, units / steps + 1});
    while (true) {
      Counts counts = none;
      search(order, 0, grid, counts, best);
      bool finest = true;
      for (size_t g = 0; g < grid.size(); ++g) {
        finest = finest && (grid[g].step == 1 || g == order.back());
        const int64_t around = grid[g].step, near = best.stored[g];
        grid[g] = {std::max<int64_t>(0, near - around), std::min(all[g], near + around), 2 * around / steps + 1};
      }
      if (finest) return best;
    }
  }

  Plan plan() {
    const Mix m = best();
    Plan plan;
    plan.groups = groups_;
    plan.bytes = fixed_;
    plan.stored = m.stored;
    plan.checkpoints = m.checkpoints;
    plan.spilled = m.spilled;
    plan.relative_time = m.seconds / base_seconds_;
    plan.mlp_tokens = mlp_tokens_;
    const auto put = [&](Component component, uint64_t bytes) { plan.bytes[static_cast<size_t>(component)] = bytes; };
    put(Component::kArena, m.arena);
    put(Component::kStaging, any(m.stored) ? staging_ : 0);
    put(Component::kSavedActivations, m.saved);
    put(Component::kActivations, static_cast<uint64_t>(m.buffers) * activation_);
    put(Component::kCheckpoints, static_cast<uint64_t>(m.checkpoints) * activation_);
    if (config_.budget > 0) keep_weights(plan);
    return plan;
  }

 private:
  static bool any(const Counts& stored) {
    return std::any_of(stored.begin(), stored.end(), [](int64_t n) { return n > 0; });
  }

  void set(Component component, uint64_t bytes) { fixed_[static_cast<size_t>(component)] = bytes; }

  Counts given_counts() const {
    const Counts& given = config_.stored_units;
    const std::string what = "stored_units " + text_of(given) + ": ";
    if (config_.backward != Backward::kAuto) fail(what, "goes with backward auto, not ", name_of(config_.backward));
    if (given.size() != groups_.size()) fail(what, "this bundle has ", groups_.size(), " groups of units");
    for (size_t g = 0; g < given.size(); ++g) {
      if (given[g] < 0 || given[g] > groups_[g].units) {
        fail(what, "of ", groups_[g].name, " a step has ", groups_[g].units, " units at most");
      }
    }
    return given;
  }

  /// The numbers that are tried for a group: the first, every `step`th after it, and the last.
  struct Grid {
    int64_t first, last, step;
  };

  /// Tries numbers for the groups from order[depth] on.
  void search(const std::vector<size_t>& order, size_t depth, const std::vector<Grid>& grid, Counts& counts,
              Mix& best) {
    if (depth == order.size()) return;
    const size_t group = order[depth];
    const int64_t most = groups_[group].units;
    if (depth + 1 < order.size()) {
      const auto [first, last, step] = grid[group];
      for (int64_t n = first; n < last + step; n += step) {
        counts[group] = std::min(n, last);
        search(order, depth + 1, grid, counts, best);
      }
      counts[group] = 0;
      return;
    }
    // Between 1 and most - 1 the methods in use do not change; memory is linear in the number but for what spilling
    // evens out, and so is time up to where spilling begins, and from there.
    const auto at = [&](int64_t n) {
      counts[group] = n;
      return mix(counts);
    };
    const auto last = [&](const auto& holds) {  // the last n below `most` up to which it does
      int64_t low = 0, high = most - 1;
      while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (holds(at(middle))) {
          low = middle;
        } else {
          high = middle - 1;
        }
      }
      return low;
    };
    const auto fits = [&](const Mix& m) { return m.total <= config_.budget; };
    std::set<int64_t> candidates;
    for (const int64_t n :
         {int64_t{0}, most, last([&](const Mix& m) { return fits(m) && m.spilled == 0; }), last(fits)}) {
      for (int64_t near = n - kNeighbours; near <= n + kNeighbours; ++near) {
        if (near >= 0 && near <= most) candidates.insert(near);
      }
    }
    for (const int64_t n : candidates) {
      Mix m = at(n);
      const bool better =
          fits(m) && fits(best) ? m.seconds < best.seconds : fits(m) || (!fits(best) && m.total < best.total);
      if (better) best = std::move(m);
    }
    counts[group] = 0;
  }

  /// The mix that stores `stored` units of each group and keeps as many of the others' checkpoints in memory as there
  /// is room.
  Mix mix(const Counts& stored) {
    Mix m;
    m.stored = stored;
    m.arena = arena(stored);
    int64_t again = 0, beside = 0;
    m.seconds = base_seconds_ + more_seconds_;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const UnitGroup& group = groups_[g];
      m.saved += static_cast<uint64_t>(stored[g]) * group.saved;
      again += group.units - stored[g];
      if (group.reads_x) beside += stored[g];
      m.seconds += static_cast<double>(group.units - stored[g]) * group.seconds;
    }
    // Where layers differ, no step selects the most of every group.
    again = std::min(again, selected_units_);
    const uint64_t before = fixed_total_ + m.arena + (any(stored) ? staging_ : 0) + m.saved +
                            static_cast<uint64_t>(2 + beside) * activation_;
    int64_t in_memory = again;
    if (config_.budget > 0 && !config_.spill_folder.empty()) {
      const int64_t room = static_cast<int64_t>(config_.budget > before ? (config_.budget - before) / activation_ : 0);
      if (room < again) {
        m.buffers = 3;
        in_memory = std::max<int64_t>(0, room - 1);
      }
    }
    m.checkpoints = in_memory + beside;
    m.spilled = again - in_memory;
    m.total = before + static_cast<uint64_t>(m.buffers - 2 + in_memory) * activation_;
    m.seconds += static_cast<double>(m.spilled) * 2.0 * static_cast<double>(activation_) / kSpillBytesPerSecond;
    return m;
  }

  /// Bytes of the arena that the mix's methods touch.
  uint64_t arena(const Counts& stored) {
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
        const auto calls = [&](const char* what) {
          takes(kind.name + what, kind.call_tokens(mlp_tokens_), kind.tokens);
        };
        calls("_forward");
        if (use[g] > 0) {
          calls("_forward_save");
          calls("_backward");
        }
        if (use[g] < 2) calls("_backward_recompute");
      }
    }
    return known->second = arena_bytes(model_.program(), methods);
  }

  /// Spends what is left of the budget on keeping weights mapped from step to step.
  void keep_weights(Plan& plan) const {
    const size_t units = model_.bundle().units.size();
    const uint64_t total = plan.total();
    uint64_t kept = 0;
    while (plan.resident <= units) {
      const uint64_t next = model_.weight_bytes(plan.resident);
      if (total + kept + next > config_.budget) break;
      kept += next;
      ++plan.resident;
    }
    plan.bytes[static_cast<size_t>(Component::kResidentWeights)] = kept;
  }

  const Model& model_;
  const TrainConfig& config_;
  const int64_t mlp_tokens_;
  uint64_t activation_ = 0;  // bytes of x
  uint64_t staging_ = 0;
  std::vector<UnitGroup> groups_;
  int64_t selected_units_ = 0;  // by a step, at most
  double base_seconds_ = 0;     // of a step with everything stored and calls as large as can be
  double more_seconds_ = 0;     // where they are smaller
  std::array<uint64_t, kComponents> fixed_{};
  uint64_t fixed_total_ = 0;
  std::map<std::vector<int>, uint64_t> arenas_;
};

/// The sizes of an MLP's calls to choose from.
std::vector<int64_t> mlp_tokens(const Bundle& bundle, const TrainConfig& config) {
  int64_t most = 1;
  for (const UnitKind& kind : bundle.kinds) {
    if (!kind.takes_positions) most = std::max(most, kind.tokens);
  }
  if (config.mlp_tokens > most) fail("mlp_tokens ", config.mlp_tokens, ": this bundle's MLPs take ", most, " at most");
  if (config.mlp_tokens > 0) return {config.mlp_tokens};
  std::vector<int64_t> sizes{most};
  for (int64_t size = most / 2; config.budget > 0 && size >= kFewestTokens; size /= 2) {
    if (size < config.tokens()) sizes.push_back(size);
  }
  return sizes;
}

}  // namespace

bool is_anonymous(Component component) {
  switch (component) {
    case Component::kCode:
    case Component::kWeightsWindow:
    case Component::kResidentWeights:
      return false;
    case Component::kHeap:
    case Component::kLora:
    case Component::kNoAdapter:
    case Component::kGradients:
    case Component::kSpareGradients:
    case Component::kOptimizer:
    case Component::kKernelScratch:
    case Component::kArena:
    case Component::kStaging:
    case Component::kSavedActivations:
    case Component::kActivations:
    case Component::kCheckpoints:
      return true;
  }
  fail("component ", static_cast<int>(component), " is not known");
}

uint64_t Plan::total() const {
  uint64_t sum = 0;
  for (const uint64_t part : bytes) sum += part;
  return sum;
}

uint64_t Plan::anonymous() const {
  uint64_t sum = 0;
  for (size_t c = 0; c < kComponents; ++c) sum += is_anonymous(static_cast<Component>(c)) ? bytes[c] : 0;
  return sum;
}

size_t Plan::group_of(const UnitInfo& unit) const {
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].kinds[unit.kind]) return g;
  }
  fail("unit ", unit.name, " is in no group");
}

Plan plan_training(const Model& model, const TrainConfig& config) {
  return plan_training(model, config, process_memory());
}

Plan plan_training(const Model& model, const TrainConfig& config, const ProcessMemory& now) {
  check(config, model.bundle().max_seq_len);
  // Kernels size their scratch by it.
  struct Parts {
    const int64_t before;
    ~Parts() { set_thread_parts(before); }
  } restored{set_thread_parts(config.threads)};
  std::optional<Plan> best;
  for (const int64_t tokens : mlp_tokens(model.bundle(), config)) {
    Plan plan = Planner(model, config, now, tokens).plan();
    const auto fits = [&](const Plan& p) { return p.total() <= config.budget; };
    const bool better =
        !best || (fits(plan) && fits(*best) ? plan.relative_time < best->relative_time
                                            : fits(plan) || (!fits(*best) && plan.total() < best->total()));
    if (better) best = std::move(plan);
  }
  return *best;
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
