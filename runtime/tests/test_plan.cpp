// The planner against brute force, on a real bundle from the environment variable MFT_TEST_BUNDLE: the policy it
// chooses is the fastest that fits, and more budget is never slower.

#include <cmath>
#include <set>

#include "runtime/plan/plan.h"
#include "runtime/platform/pages.h"
#include "runtime/tests/test_support.h"
#include "runtime/train/run.h"

using namespace mft;
using namespace mft_test;

namespace {

TrainConfig config_of(const ScheduleRule& rule, const std::string& offload_folder) {
  TrainConfig config;
  config.seq_len = 64;
  config.schedule.rule = &rule;
  config.offload_folder = offload_folder;
  return config;
}

/// A process of fixed size: how much this one holds would change from one plan to the next.
ProcessMemory process() {
  ProcessMemory memory;
  memory.rss = 20000000;
  memory.anon = 5000000;
  return memory;
}

/// Of a machine that reads so many bytes of weights a second.
Throughput throughput(double read) { return {150e9, 100e9, 5e9, 1e9, read}; }
constexpr double kFast = 1e12, kSlow = 1e8;

Plan plan_of(const Model& model, const TrainConfig& config, double read) {
  return plan_training(model, config, process(), throughput(read));
}

/// The time of the fastest of all policies that fit `config.budget`, 0 where none does.
double fastest(const Model& model, TrainConfig config, const Plan& like, double read) {
  double time = 0;
  for (config.mlp_tokens = 64; config.mlp_tokens >= 32; config.mlp_tokens /= 2) {
    for (int64_t attn = 0; attn <= like.groups[0].units; ++attn) {
      for (int64_t mlp = 0; mlp <= like.groups[1].units; ++mlp) {
        config.stored_units = {attn, mlp};
        const Plan plan = plan_of(model, config, read);
        CHECK(plan.stored == config.stored_units);
        CHECK(plan.mlp_tokens == config.mlp_tokens);
        const bool fits = plan.total() - plan.of(Component::kResidentWeights) <= config.budget;
        if (fits && (time == 0 || plan.seconds < time)) time = plan.seconds;
      }
    }
  }
  return time;
}

void test_optimal(const Model& model, const std::string& offload_folder, double read) {
  for (const ScheduleRule* rule : schedule_rules()) {
    TrainConfig config = config_of(*rule, offload_folder);
    config.budget = 1;
    const uint64_t smallest = plan_of(model, config, read).total();
    config.backward = Backward::kStore;
    uint64_t everything = plan_of(model, config, read).total();
    for (size_t u = 0; u <= model.bundle().units.size(); ++u) everything += model.weight_bytes(u);
    config.backward = Backward::kAuto;
    double before = 1e9, relative = 0;
    std::set<double> times;
    std::set<int64_t> sizes;
    for (int step = -1; step <= 24; ++step) {
      const int64_t span = static_cast<int64_t>(everything) - static_cast<int64_t>(smallest);
      config.budget = static_cast<uint64_t>(static_cast<int64_t>(smallest) + span * step / 20);
      const Plan plan = plan_of(model, config, read);
      const double brute_force = fastest(model, config, plan, read);
      const bool fits = plan.total() <= config.budget;
      CHECK(fits == (brute_force > 0));
      if (!fits) continue;
      CHECK_NEAR(plan.seconds, brute_force, 1e-12);
      CHECK(plan.seconds <= before * (1 + 1e-12));
      CHECK((plan.read_seconds > 0) == (plan.resident <= model.bundle().units.size()));
      before = plan.seconds;
      relative = plan.relative_time;
      times.insert(plan.seconds);
      sizes.insert(plan.mlp_tokens);
    }
    CHECK(times.size() > 3);  // the budgets made a difference
    CHECK(sizes.size() == 2);
    CHECK_NEAR(relative, 1, 1e-12);
  }
}

/// Where storage is slow, what a budget leaves keeps weights in memory rather than activations.
void test_reading(const Model& model) {
  TrainConfig config = config_of(kFull, "");
  config.budget = 1;
  config.budget = plan_of(model, config, kSlow).total();
  for (size_t u = 0; u < model.bundle().units.size(); ++u) config.budget += model.weight_bytes(u);
  const Plan slow = plan_of(model, config, kSlow), fast = plan_of(model, config, kFast);
  CHECK(slow.resident >= 2 && slow.resident > fast.resident);
  CHECK(fast.stored[0] + fast.stored[1] > slow.stored[0] + slow.stored[1]);
  config.budget = 0;  // nothing says that weights have to leave the page cache
  CHECK(plan_of(model, config, kSlow).read_seconds == 0);
  config.grad_accum = 3;
  config.stored_units = {0, 0};
  const double three = plan_of(model, config, kSlow).seconds;
  config.grad_accum = 1;
  const double one = plan_of(model, config, kSlow).seconds;
  CHECK_NEAR(three, 3 * one, 1e-12);
}

/// What this machine does is measured once.
void test_rates(const Model& model) {
  const TrainConfig config = config_of(kFull, "");
  const Throughput first = measured_throughput(config, model.bundle()),
                   second = measured_throughput(config, model.bundle());
  for (const double rate : {first.linear, first.attention, first.decoded, first.elements, first.read}) {
    CHECK(rate > 1e5 && rate < 1e15);
  }
  CHECK(first.linear == second.linear && first.decoded == second.decoded);
  CHECK(plan_training(model, config).seconds > 0);
}

/// Throughput of another machine scale the time; nothing else does as a text.
void test_given_rates(const Model& model) {
  const TrainConfig config = config_of(kFull, "");
  Throughput slow, fast;
  read_value("1000000000,500000000,20000000,10000000,100000000", slow);
  read_value("4000000000,2000000000,80000000,40000000,400000000", fast);
  CHECK(fast.linear == 4e9 && fast.attention == 2e9 && fast.decoded == 8e7 && fast.elements == 4e7 && fast.read == 4e8);
  const double seconds = plan_training(model, config, process(), slow).seconds;
  CHECK(std::abs(seconds / plan_training(model, config, process(), fast).seconds - 4) < 1e-9);
  for (const char* text : {"", "1,2,3,4", "1,2,3,4,5,6", "1,2,3,4,0", "1,2,3,4,-5", "1,2,3,4,x"}) {
    CHECK_ERROR(read_value(text, slow), "");
  }
}

void test_refusals(const Model& model) {
  TrainConfig config = config_of(kFull, "");
  const auto refuses = [&](std::vector<int64_t> stored, const char* part) {
    config.stored_units = std::move(stored);
    CHECK_ERROR(plan_training(model, config), part);
  };
  refuses({1}, "stored_units 1: must have a number for each of the bundle's 2 groups");
  refuses({0, 99}, "stored_units 0,99: group mlp has at most 4 units per step");
  refuses({-1, 0}, "stored_units -1,0: group attn has at most 4 units per step");
  config.backward = Backward::kStore;
  refuses({1, 1}, "requires backward auto, not store");
  config = config_of(kFull, "");
  config.mlp_tokens = 65;
  CHECK_ERROR(plan_training(model, config), "mlp_tokens 65: must be at most 64 for this bundle");
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
  CHECK_ERROR(is_anonymous(static_cast<Component>(kComponents)), "component 16 is unknown");
}

/// A long run needs memory for what it remembers; in whole pages.
void test_history(const Model& model) {
  TrainConfig config = config_of(kFull, "");
  const auto heap = [&](int64_t steps, int64_t eval_every) {
    config.steps = steps;
    config.eval_every = eval_every;
    return plan_of(model, config, kFast).of(Component::kHeap);
  };
  CHECK(heap(1000 * 4096, 0) - heap(4096, 0) == 80 * 999 * 4096);
  CHECK(heap(999 * 4096 - 1, 1) - heap(999 * 4096 - 1, 0) == 400 * 999 * 4096);
}

/// Batches lie on the heap: more bytes a token for losses that compare rows.
void test_batches(const Model& model) {
  const auto heap = [&](Loss loss, int64_t tokens) {
    TrainConfig config = config_of(kFull, "");
    config.loss = loss;
    config.seq_len = tokens;
    return plan_of(model, config, kFast).of(Component::kHeap);
  };
  const int64_t most = model.bundle().max_seq_len;
  const uint64_t tokens = static_cast<uint64_t>(most), without = heap(Loss::kSft, 1) - round_to_pages(64);
  CHECK(heap(Loss::kSft, most) == without + round_to_pages(64 * tokens));
  CHECK(heap(Loss::kDpo, most) == without + round_to_pages(128 * tokens));
  CHECK(heap(Loss::kKto, most) == without + round_to_pages(256 * tokens));
}

}  // namespace

int main() {
  const char* bundle = test_bundle();
  if (bundle == nullptr) return 0;
  const TempFolder folder;
  const Model model(bundle);
  for (const double read : {kFast, 1e9, kSlow}) {
    test_optimal(model, "", read);
    test_optimal(model, folder.path(), read);
  }
  test_reading(model);
  test_given_rates(model);
  test_rates(model);
  test_refusals(model);
  test_components(model);
  test_history(model);
  test_batches(model);
  return finish();
}
