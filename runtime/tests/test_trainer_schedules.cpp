// What schedules train and what they leave out, on the bundle of MFT_TEST_BUNDLE.

#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "runtime/tests/trainer_test.h"

using namespace mft;
using namespace mft_test;

namespace {

/// The loss on a repeated batch falls, and exactly the selected layers' units run their backward.
void test_schedules(const Fixture& fixture) {
  const std::string tokens = fixture.tokens(1);
  for (TrainConfig config : every_schedule(fixture)) {
    config.steps = 12;
    config.schedule.steps = 12;
    if (config.schedule.rule == &kLisa) config.schedule.period = 3;
    config.lr_scheduler = LrScheduler::kConstant;
    Run run(fixture, tokens, config);
    const Selectable choices(run.model.bundle(), config.schedule);
    const int64_t units = static_cast<int64_t>(run.model.bundle().units.size());
    int64_t expected_runs = 0;
    for (int64_t s = 0; s < config.steps; ++s) {
      const StepResult result = run.step();
      const auto selected = run.trainer.schedule().select(s, choices.count());
      const auto units_of = [&](const std::vector<bool>& l) {
        return std::count(l.begin(), l.end(), true) * units / choices.count();
      };
      const int64_t expected = units_of(selected);
      expected_runs += units_of(config.schedule.with_backward(selected));
      CHECK(result.backward_units == expected);
      for (size_t u = 0; u < result.trained.size(); ++u) CHECK(result.trained[u] == selected[choices.of(u)]);
      CHECK(result.step == s + 1 && run.trainer.steps_done() == s + 1);
      CHECK(result.tokens == kSeqLen);
      CHECK(std::isfinite(result.loss) && (result.grad_norm > 0 || expected == 0));
      CHECK_NEAR(result.lr, *config.lr.value, 0);
    }
    const auto& losses = run.trainer.losses();
    CHECK(losses.back() < losses.front() - 0.01);
    CHECK(run.trainer.sensitivities().size() == (choices.units ? static_cast<size_t>(units) : 0));
    const auto& runs = run.trainer.backward_runs();
    CHECK(std::accumulate(runs.begin(), runs.end(), int64_t{0}) == expected_runs);
  }
}

/// With skipping, only the selected layers move, and where the others are frozen; else they go on by their momentum.
void test_unselected(const Fixture& fixture) {
  const auto skips = [](TrainConfig config) {
    config.unselected = Unselected::kSkip;
    return config;
  };
  TrainConfig lisa = config_of(kLisa);
  lisa.schedule.period = 1;
  for (const auto& [config, skip] : {std::pair(skips(config_of(kLcsb, Selection::kContiguous)), true),
                                     std::pair(config_of(kLcsb, Selection::kContiguous), false), std::pair(lisa, true),
                                     std::pair(config_of(kFreeze), true)}) {
    Run run(fixture, fixture.tokens(2), config);
    const int64_t last = config.schedule.rule == &kFreeze ? config.steps - 1 : 1;
    for (int64_t s = 0; s < last; ++s) run.step();
    const std::vector<float> before = run.parameters();
    Schedule schedule = config.schedule;
    schedule.steps = config.steps;
    const auto selected = schedule.select(last, run.model.bundle().num_layers);
    CHECK(std::count(selected.begin(), selected.end(), false) > 0);
    run.step();
    const std::vector<float> after = run.parameters();
    for (size_t u = 0; u < run.model.bundle().units.size(); ++u) {
      const AdapterLayout::Range range = run.model.layout().range(u);
      const bool moved = std::memcmp(&before[range.begin], &after[range.begin], range.size() * sizeof(float)) != 0;
      CHECK(moved == (!skip || selected[static_cast<size_t>(run.model.bundle().units[u].layer)]));
    }
  }
}

/// With the prefix of frozen layers cached, the same losses and parameters to the bit, from fewer forwards; and again
/// where the run is resumed with an empty cache. With other data the cache starts anew.
void test_prefix_cache(const Fixture& fixture) {
  const std::string tokens = fixture.tokens(3);
  TrainConfig config = config_of(kFreeze);
  config.steps = 12;
  config.schedule.ratio = 0.3;
  config.offload_folder = fixture.folder.path();
  std::map<std::string, int64_t> calls[2];
  std::vector<double> losses[2];
  std::vector<float> parameters[2];
  for (const bool cached : {false, true}) {
    config.cache_prefix = cached;
    Run run(fixture, tokens, config);
    run.model.observe([&](const std::string& unit, const std::string&, double, double) { ++calls[cached][unit]; });
    run.steps(6);
    run.trainer.save_checkpoint(fixture.folder.path(), run.data);
    run.steps(6);
    losses[cached] = run.trainer.losses();
    parameters[cached] = run.parameters();
    Run second(fixture, tokens, config);
    second.trainer.resume(fixture.folder.path(), second.data);
    second.steps(6);
    CHECK(second.trainer.losses() == losses[cached]);
    run.trainer.resume(fixture.folder.path(), run.data);  // one that is further than the checkpoint
    run.steps(6);
    CHECK(run.trainer.losses() == losses[cached]);
  }
  CHECK(losses[0] == losses[1]);
  CHECK(parameters[0] == parameters[1]);
  const std::string lowest = Bundle(fixture.bundle).units.front().name,
                    highest = Bundle(fixture.bundle).units.back().name;
  CHECK(calls[1][lowest] < calls[0][lowest] && calls[1]["embed"] < calls[0]["embed"]);
  CHECK(calls[1][highest] == calls[0][highest]);

  config.batch_size = 2;  // int8 would round what it computes alone otherwise than together
  config.grad_accum = 2;
  config.compute = ComputeChoice::kFloat32;
  Run run(fixture, tokens, config);
  run.steps(10);
  const TokenFile other(fixture.tokens(3, 2), run.model.bundle().vocab_size);
  config.cache_prefix = false;
  Run expected(fixture, tokens, config);
  expected.steps(10);
  for (int s = 0; s < 2; ++s) CHECK_NEAR(run.trainer.step(other).loss, expected.trainer.step(other).loss, 1e-5);
  config.cache_prefix = true;
  config.offload_folder.clear();
  CHECK_ERROR(Run(fixture, tokens, config), "cache_prefix: requires offload_folder");
  config.schedule.rule = &kFull;
  CHECK_ERROR(Run(fixture, tokens, config), "cache_prefix: requires schedule freeze, not full");
}

/// Sensitivities against their definition: the norms of all gradients of one batch, and again with each unit dropped.
void test_sensitivities(const Fixture& fixture) {
  TrainConfig config = config_of(kDropBP);
  config.schedule.ratio = 1;
  config.offload_folder = fixture.folder.path();
  Run run(fixture, fixture.tokens(1), config);
  const size_t units = run.model.bundle().units.size();
  Batch batch;
  run.data.append(0, batch);
  run.steps(2);  // B of a new adapter is zero, and so are the gradients of A
  const auto norms = [&](size_t dropped) {
    std::vector<bool> selected(units, true);
    if (dropped < units) selected[dropped] = false;
    run.trainer.accumulate(batch, selected, true);
    std::vector<double> found;
    for (size_t u = 0; u < units; ++u) {
      const float* g = run.trainer.gradients(u);
      for (const AdapterTensor& tensor : run.model.layout().units[u]) {
        double squares = 0;
        for (size_t i = 0; i < tensor.size() && g != nullptr; ++i) {
          squares += std::pow(static_cast<double>(g[tensor.offset - run.model.layout().range(u).begin + i]), 2);
        }
        found.push_back(std::sqrt(squares) / static_cast<double>(batch.target_count));
      }
    }
    return found;
  };
  const std::vector<double> whole = norms(units);
  const std::vector<double> measured = run.trainer.measure_sensitivities(batch);
  CHECK(measured.size() == units);
  for (size_t u = 0; u < units; ++u) {
    const std::vector<double> changed = norms(u);
    double expected = 0;
    for (size_t i = 0; i < whole.size(); ++i) expected += std::pow(whole[i] - changed[i], 2);
    CHECK(expected > 0);
    CHECK_NEAR(measured[u] / expected, 1, 1e-4);
  }
  Batch without = batch;
  std::fill(without.targets.begin(), without.targets.end(), -100);
  without.target_count = 0;
  CHECK_ERROR(run.trainer.measure_sensitivities(without), "no targets to measure sensitivities on");
  config.offload_folder.clear();
  CHECK_ERROR(Run(fixture, fixture.tokens(1), config), "schedule dropbp: requires offload_folder");
}

}  // namespace

int main() {
  const char* bundle = test_bundle();
  if (bundle == nullptr) return 0;
  const Fixture fixture(bundle);
  test_schedules(fixture);
  test_unselected(fixture);
  test_prefix_cache(fixture);
  test_sensitivities(fixture);
  return finish();
}
