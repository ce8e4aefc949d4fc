#include "runtime/plan/plan.h"

#include <algorithm>
#include <optional>

#include "runtime/base/bisect.h"
#include "runtime/base/error.h"
#include "runtime/plan/policy_search.h"
#include "runtime/platform/threads.h"

namespace mft {
namespace {

constexpr uint64_t kMegabyte = 1000 * 1000;
// Minimum tokens of an MLP's call. Below, decoding its weights takes most of the time.
constexpr int64_t kFewestTokens = 32;

std::vector<int64_t> given_counts(const TrainConfig& config, const std::vector<UnitGroup>& groups) {
  const std::vector<int64_t>& given = config.stored_units;
  const std::string what = "stored_units " + text_of(given) + ": ";
  if (config.backward != Backward::kAuto) fail(what, "requires backward auto, not ", name_of(config.backward));
  if (given.size() != groups.size())
    fail(what, "must have a number for each of the bundle's ", groups.size(), " groups of units");
  for (size_t g = 0; g < given.size(); ++g) {
    if (given[g] < 0 || given[g] > groups[g].units) {
      fail(what, "group ", groups[g].name, " has at most ", groups[g].units, " units per step");
    }
  }
  return given;
}

/// Returns the best policy that the options allow.
ActivationPolicy best_mix(const TrainConfig& config, PolicyCosts& costs) {
  if (!config.stored_units.empty()) return costs.of(given_counts(config, costs.groups()));
  std::vector<int64_t> none(costs.groups().size()), all;
  for (const UnitGroup& group : costs.groups()) all.push_back(group.units);
  switch (config.backward) {
    case Backward::kRecompute:
      return costs.of(none);
    case Backward::kStore:
      return costs.of(all);
    case Backward::kAuto:
      break;
  }
  return config.budget == 0 ? costs.of(none) : fastest_policy(costs);
}

/// Uses the rest of the budget to keep weights mapped between steps.
void keep_weights(const Model& model, uint64_t budget, Plan& plan) {
  const size_t units = model.bundle().units.size();
  const uint64_t total = plan.total();
  uint64_t kept = 0;
  while (plan.resident <= units) {
    const uint64_t next = model.weight_bytes(plan.resident);
    if (total + kept + next > budget) break;
    kept += next;
    ++plan.resident;
  }
  plan.bytes[static_cast<size_t>(Component::kResidentWeights)] = kept;
}

Plan plan_of(const Model& model, const TrainConfig& config, PolicyCosts& costs, int64_t mlp_tokens) {
  const ActivationPolicy m = best_mix(config, costs);
  Plan plan;
  plan.groups = costs.groups();
  plan.bytes = costs.fixed();
  plan.stored = m.stored;
  plan.checkpoints = m.checkpoints;
  plan.offloaded = m.offloaded;
  plan.mlp_tokens = mlp_tokens;
  plan.seconds = m.seconds * static_cast<double>(config.grad_accum);
  plan.read_seconds = m.read_seconds * static_cast<double>(config.grad_accum);
  plan.relative_time = m.seconds / costs.least_seconds();
  const auto put = [&](Component component, uint64_t bytes) { plan.bytes[static_cast<size_t>(component)] = bytes; };
  const bool stores = std::any_of(m.stored.begin(), m.stored.end(), [](int64_t n) { return n > 0; });
  put(Component::kArena, m.arena);
  if (stores) plan.bytes[static_cast<size_t>(Component::kKernelScratch)] += costs.staging_bytes();
  put(Component::kSavedActivations, m.saved);
  put(Component::kActivations, static_cast<uint64_t>(m.buffers) * costs.activation_bytes());
  put(Component::kCheckpoints, static_cast<uint64_t>(m.checkpoints) * costs.activation_bytes());
  if (config.budget > 0) keep_weights(model, config.budget, plan);
  return plan;
}

/// The possible sizes of an MLP's calls.
std::vector<int64_t> mlp_tokens(const Bundle& bundle, const TrainConfig& config) {
  int64_t most = 1;
  for (const UnitKind& kind : bundle.kinds) {
    if (!kind.takes_positions) most = std::max(most, kind.tokens);
  }
  if (config.mlp_tokens > most) fail("mlp_tokens ", config.mlp_tokens, ": must be at most ", most, " for this bundle");
  if (config.mlp_tokens > 0) return {config.mlp_tokens};
  std::vector<int64_t> sizes{most};
  for (int64_t size = most / 2; config.budget > 0 && size >= kFewestTokens; size /= 2) {
    if (size < config.tokens()) sizes.push_back(size);
  }
  return sizes;
}

}  // namespace

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
  fail("unit ", unit.name, " is not in any group");
}

Plan plan_training(const Model& model, const TrainConfig& config) {
  check(config, model.bundle().max_seq_len);
  const Throughput throughput = measured_throughput(config, model.bundle());
  return plan_training(model, config, process_memory(), throughput);
}

Plan plan_training(const Model& model, const TrainConfig& config, const ProcessMemory& now,
                   const Throughput& throughput) {
  check(config, model.bundle().max_seq_len);
  if (config.cache_prefix && model.bundle().has_side_tensors()) {
    fail("cache_prefix: not supported by this model, whose layers share keys and values or have per-layer embeddings");
  }
  const ThreadParts parts(config.threads);  // the kernels' scratch depends on it
  std::optional<Plan> best;
  for (const int64_t tokens : mlp_tokens(model.bundle(), config)) {
    PolicyCosts costs(model, config, now, throughput, tokens);
    Plan plan = plan_of(model, config, costs, tokens);
    const auto fits = [&](const Plan& p) { return p.total() <= config.budget; };
    const bool better =
        !best || (fits(plan) && fits(*best) ? plan.seconds < best->seconds
                                            : fits(plan) || (!fits(*best) && plan.total() < best->total()));
    if (better) best = std::move(plan);
  }
  return *best;
}

void check_budget(const Plan& plan, const TrainConfig& config) {
  if (config.budget == 0 || plan.total() <= config.budget) return;
  fail("budget ", config.budget / kMegabyte, "MB is too small; this run needs ",
       (plan.total() + kStartSpread) / kMegabyte + 1, "MB; raise it",
       config.resumed ? "; a resumed run keeps what it stores and its seq_len and batch_size"
                      : ", or lower seq_len or batch_size");
}

int64_t longest_sequence(const Model& model, TrainConfig config, const Throughput& throughput) {
  const int64_t most = model.bundle().max_seq_len / config.batch_size;
  const auto fits = [&](int64_t tokens) {
    config.seq_len = tokens;
    return config.budget == 0 || plan_training(model, config, process_memory(), throughput).total() <= config.budget;
  };
  if (most < 1 || !fits(1)) return 0;
  return last_that(1, most, fits);
}

}  // namespace mft
