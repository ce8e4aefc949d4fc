// The planner against brute force, on a real bundle from the environment variable MFT_TEST_BUNDLE: the mix it chooses
// is the fastest that fits, and more budget is never slower.

#include <set>

#include "runtime/core/plan.h"
#include "runtime/core/run.h"
#include "runtime/tests/core_test.h"

using namespace mft;
using namespace mft_test;

namespace {

TrainConfig config_of(const ScheduleRule& rule, const std::string& spill_folder) {
  TrainConfig config;
  config.seq_len = 64;
  config.schedule.rule = &rule;
  config.spill_folder = spill_folder;
  return config;
}

/// A process of fixed size: how much this one holds would change from one plan to the next.
ProcessMemory process() {
  ProcessMemory memory;
  memory.rss = 20000000;
  memory.anon = 5000000;
  return memory;
}

Plan plan_of(const Model& model, const TrainConfig& config) { return plan_training(model, config, process()); }

/// The relative time of the fastest of all mixes that fit `config.budget`, 0 where none does.
double fastest(const Model& model, TrainConfig config, const Plan& like) {
  double time = 0;
  for (config.mlp_tokens = 64; config.mlp_tokens >= 32; config.mlp_tokens /= 2) {
    for (int64_t attn = 0; attn <= like.groups[0].units; ++attn) {
      for (int64_t mlp = 0; mlp <= like.groups[1].units; ++mlp) {
        config.stored_units = {attn, mlp};
        const Plan plan = plan_of(model, config);
        CHECK(plan.stored == config.stored_units);
        CHECK(plan.mlp_tokens == config.mlp_tokens);
        const bool fits = plan.total() - plan.of(Component::kResidentWeights) <= config.budget;
        if (fits && (time == 0 || plan.relative_time < time)) time = plan.relative_time;
      }
    }
  }
  return time;
}

void test_optimal(const Model& model, const std::string& spill_folder) {
  for (const ScheduleRule* rule : schedule_rules()) {
    TrainConfig config = config_of(*rule, spill_folder);
    config.budget = 1;
    const uint64_t smallest = plan_of(model, config).total();
    config.backward = Backward::kStore;
    const uint64_t everything = plan_of(model, config).total();
    config.backward = Backward::kAuto;
    double before = 1e9;
    std::set<double> times;
    std::set<int64_t> sizes;
    for (int step = -1; step <= 24; ++step) {
      const int64_t span = static_cast<int64_t>(everything) - static_cast<int64_t>(smallest);
      config.budget = static_cast<uint64_t>(static_cast<int64_t>(smallest) + span * step / 20);
      const Plan plan = plan_of(model, config);
      const double brute_force = fastest(model, config, plan);
      const bool fits = plan.total() <= config.budget;
      CHECK(fits == (brute_force > 0));
      if (!fits) continue;
      CHECK_NEAR(plan.relative_time, brute_force, 1e-12);
      CHECK(plan.relative_time <= before + 1e-12);
      before = plan.relative_time;
      times.insert(plan.relative_time);
      sizes.insert(plan.mlp_tokens);
    }
    CHECK(times.size() > 3);  // the budgets made a difference
    CHECK(sizes.size() == 2);
    CHECK_NEAR(before, 1, 1e-12);
  }
}

void test_refusals(const Model& model) {
  TrainConfig config = config_of(kFull, "");
  const auto refuses = [&](std::vector<int64_t> stored, const char* part) {
    config.stored_units = std::move(stored);
    CHECK_ERROR(plan_training(model, config), part);
  };
  refuses({1}, "stored_units 1: this bundle has 2 groups of units");
  refuses({0, 99}, "stored_units 0,99: of ");
  refuses({-1, 0}, "stored_units -1,0: of ");
  config.backward = Backward::kStore;
  refuses({1, 1}, "goes with backward auto, not store");
  config = config_of(kFull, "");
  config.mlp_tokens = 65;
  CHECK_ERROR(plan_training(model, config), "mlp_tokens 65: this bundle's MLPs take 64 at most");
  config = config_of(kFull, "");
  config.arithmetic = "abacus";
  CHECK_ERROR(plan_training(model, config), "arithmetic abacus: this machine computes with ");
}

/// Reports name every component, and an unknown one is an error rather than nothing.
void test_components(const Model& model) {
  const TrainConfig config = config_of(kFull, "");
  const Event event = describe(plan_training(model, config), config);
  CHECK(event.at("components_mb").size() == kComponents);
  CHECK(event.at("anonymous").size() == kComponents - 3);
  CHECK_ERROR(is_anonymous(static_cast<Component>(kComponents)), "component 15 is not known");
}

}  // namespace

int main() {
  const char* bundle = test_bundle();
  if (bundle == nullptr) return 0;
  const TempFolder folder;
  const Model model(bundle);
  test_optimal(model, "");
  test_optimal(model, folder.path());
  test_refusals(model);
  test_components(model);
  return finish();
}
