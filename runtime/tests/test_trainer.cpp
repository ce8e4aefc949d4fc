// Trainer on a real bundle, from the environment variable MFT_TEST_BUNDLE: schedules, resuming, budget.

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>

#include "runtime/core/random.h"
#include "runtime/core/trainer.h"
#include "runtime/tests/core_test.h"

using namespace mft;
using namespace mft_test;

namespace {

constexpr int64_t kSeqLen = 16;

/// A bundle and a token file of `sequences` random sequences for it.
struct Fixture {
  TempFolder folder;
  std::string bundle;

  explicit Fixture(const std::string& path) : bundle(path) {}

  std::string tokens(int64_t sequences, uint64_t seed = 1) const {
    const int64_t vocabulary = Bundle(bundle).vocab_size;
    Random random(seed, 0);
    TokenTensors t;
    for (int64_t s = 0; s < sequences; ++s) {
      std::vector<int32_t> row;
      for (int64_t i = 0; i < kSeqLen - s % 3; ++i) {
        row.push_back(static_cast<int32_t>(random.next() % static_cast<uint64_t>(vocabulary)));
      }
      t.add(row, row.front());
    }
    const std::string path = folder / ("tokens" + std::to_string(sequences) + "_" + std::to_string(seed));
    t.write(path);
    return path;
  }
};

/// One run: model, data and trainer.
struct Run {
  Model model;
  TokenFile data;
  Trainer trainer;

  Run(const Fixture& fixture, const std::string& tokens, const TrainConfig& config, const std::string& adapter = "")
      : model(fixture.bundle), data(tokens, model.bundle().vocab_size), trainer(model, config, adapter) {}

  StepResult step() { return trainer.step(data); }
  void steps(int64_t count) {
    for (int64_t i = 0; i < count; ++i) step();
  }
  std::vector<float> parameters() const {
    std::vector<float> values(model.layout().size);
    std::copy_n(model.parameters(), values.size(), values.begin());
    return values;
  }
};

TrainConfig config_of(const ScheduleRule& rule, Selection selection = Selection::kRandom) {
  TrainConfig config;
  config.steps = 6;
  config.seq_len = kSeqLen;
  config.lr = 5e-3;
  config.schedule.rule = &rule;
  config.schedule.selection = selection;
  config.seed = 3;
  config.schedule.seed = 3;
  return config;
}

std::vector<TrainConfig> every_schedule(const Fixture& fixture) {
  TrainConfig dropbp = config_of(kDropBP);
  dropbp.spill_folder = fixture.folder.path();
  return {dropbp,
          config_of(kFull),
          config_of(kLcsb, Selection::kContiguous),
          config_of(kLcsb, Selection::kStrided),
          config_of(kLcsb, Selection::kRandom),
          config_of(kSuffix),
          config_of(kLisa),
          config_of(kFreeze)};
}

/// The loss on a repeated batch falls, and exactly the selected layers' units run their backward.
void test_schedules(const Fixture& fixture) {
  const std::string tokens = fixture.tokens(1);
  for (TrainConfig config : every_schedule(fixture)) {
    config.steps = 12;
    config.schedule.steps = 12;
    config.schedule.period = 3;
    config.lr_scheduler = LrScheduler::kConstant;
    Run run(fixture, tokens, config);
    const Choices choices(run.model.bundle(), config.schedule);
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
      CHECK_NEAR(result.lr, config.lr, 0);
    }
    const auto& losses = run.trainer.losses();
    CHECK(losses.back() < losses.front() - 0.01);
    CHECK(run.trainer.sensitivities().size() == (choices.units ? static_cast<size_t>(units) : 0));
    const auto& runs = run.trainer.backward_runs();
    CHECK(std::accumulate(runs.begin(), runs.end(), int64_t{0}) == expected_runs);
  }
}

void test_learning_rate(const Fixture& fixture) {
  const std::pair<LrScheduler, std::vector<double>> expected[] = {
      {LrScheduler::kCosine, {0.5, 1, 1, 0.5 + std::sqrt(2.) / 4, 0.5, 0.5 - std::sqrt(2.) / 4}},
      {LrScheduler::kLinear, {0.5, 1, 1, 0.75, 0.5, 0.25}},
      {LrScheduler::kConstant, {0.5, 1, 1, 1, 1, 1}}};
  for (const auto& [scheduler, shares] : expected) {
    for (const bool as_ratio : {false, true}) {
      TrainConfig config = config_of(kSuffix);
      config.lr_scheduler = scheduler;
      if (as_ratio) {
        config.warmup_ratio = 1.0 / 3;
      } else {
        config.warmup_steps = 2;
      }
      Run run(fixture, fixture.tokens(1), config);
      for (const double share : shares) CHECK_NEAR(run.step().lr, share * config.lr, 1e-12);
      CHECK_ERROR(run.step(), "all 6 steps are done");
    }
  }
}

/// A model belongs to one trainer at a time.
void test_one_trainer(const Fixture& fixture) {
  Model model(fixture.bundle);
  const TrainConfig config = config_of(kFull);
  {
    Trainer first(model, config, "");
    CHECK_ERROR(Trainer(model, config, ""), "a trainer works on this model already");
    CHECK_ERROR(model.prepare("", 8), "a trainer works on this model; open the bundle again");
  }
  CHECK_ERROR(Trainer(model, config, fixture.folder / "none"), "none/adapter_config.json");
  Trainer second(model, config, "");  // neither the one that is gone nor the one that failed is in the way
  CHECK(second.steps_done() == 0);
}

/// A checkpoint or adapter with a number that is not finite is refused, and nothing of it is taken over.
void test_not_finite(const Fixture& fixture) {
  const std::string tokens = fixture.tokens(1), folder = fixture.folder.path();
  for (const Optimizer optimizer : {Optimizer::kAdamW, Optimizer::kAdamW8bit}) {
    TrainConfig config = config_of(kFull);
    config.optimizer = optimizer;
    Run run(fixture, tokens, config);
    run.step();
    run.trainer.save_checkpoint(folder, run.data);
    const std::string checkpoint = folder + "/checkpoint.safetensors";
    const std::string whole = read_file(checkpoint);
    const SafeTensors file(checkpoint);
    const float infinity = std::numeric_limits<float>::infinity();
    for (const char* name : {"parameters", "moments"}) {
      const SafeTensors::View& view = file.get(name, name == std::string("moments") ? "U8" : "F32");
      std::string damaged = whole;
      const size_t end = static_cast<size_t>(view.data - file.get("losses", "F64").data) + view.bytes;
      const size_t body = whole.size() - 8 - *reinterpret_cast<const uint64_t*>(whole.data());
      std::memcpy(&damaged[whole.size() - body + end - sizeof(float)], &infinity, sizeof(float));
      write_file(checkpoint + "2", damaged);
      std::filesystem::create_directories(folder + "/damaged");
      std::filesystem::rename(checkpoint + "2", folder + "/damaged/checkpoint.safetensors");
      const auto before = run.parameters();
      CHECK_ERROR(run.trainer.resume(folder + "/damaged", run.data),
                  std::string("tensor ") + name + " holds numbers that are not finite");
      CHECK(run.parameters() == before);
    }
    run.model.parameters()[3] = std::nanf("");
    save_adapter(folder, run.model.bundle(), run.model.layout(), run.model.parameters());
    Model other(fixture.bundle);
    CHECK_ERROR(other.prepare(folder, 8), "holds numbers that are not finite");
  }
}

/// Nor is one whose units have had more steps than the run: counting on would overflow.
void test_step_counts(const Fixture& fixture) {
  const std::string folder = fixture.folder.path(), checkpoint = folder + "/checkpoint.safetensors";
  Run run(fixture, fixture.tokens(1), config_of(kFull));
  run.step();
  run.trainer.save_checkpoint(folder, run.data);
  const std::string whole = read_file(checkpoint);
  const SafeTensors file(checkpoint);
  const size_t body = whole.size() - 8 - *reinterpret_cast<const uint64_t*>(whole.data());
  const size_t at =
      whole.size() - body + static_cast<size_t>(file.get("unit_steps", "I64").data - file.get("losses", "F64").data);
  std::filesystem::create_directories(folder + "/damaged");
  for (const int64_t count : {INT64_MAX, INT64_MIN, int64_t{2}}) {
    std::string damaged = whole;
    std::memcpy(&damaged[at], &count, sizeof(count));
    write_file(folder + "/damaged/checkpoint.safetensors", damaged);
    CHECK_ERROR(run.trainer.resume(folder + "/damaged", run.data),
                ": a unit with " + std::to_string(count) + " of 1 steps");
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
  config.spill_folder = fixture.folder.path();
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
  config.spill_folder.clear();
  CHECK_ERROR(Run(fixture, tokens, config), "cache_prefix: needs a folder to write to");
  config.schedule.rule = &kFull;
  CHECK_ERROR(Run(fixture, tokens, config), "cache_prefix: needs schedule freeze, not full");
}

/// Sensitivities against their definition: the norms of all gradients of one batch, and again with each unit dropped.
void test_sensitivities(const Fixture& fixture) {
  TrainConfig config = config_of(kDropBP);
  config.schedule.ratio = 1;
  config.spill_folder = fixture.folder.path();
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
  config.spill_folder.clear();
  CHECK_ERROR(Run(fixture, fixture.tokens(1), config), "schedule dropbp: needs a folder to write to");
}

/// Stopped after two steps and resumed in a new trainer: the same losses and parameters, bit for bit.
void test_resume(const Fixture& fixture) {
  const std::string tokens = fixture.tokens(5);
  const std::string folder = fixture.folder.path();
  for (TrainConfig config : every_schedule(fixture)) {
    config.batch_size = 2;
    config.grad_accum = 2;
    Run whole(fixture, tokens, config);
    whole.steps(config.steps);
    {
      Run first(fixture, tokens, config);
      first.steps(2);
      first.trainer.save_checkpoint(folder, first.data);
    }
    Run second(fixture, tokens, config);
    second.trainer.resume(folder, second.data);
    CHECK(second.trainer.steps_done() == 2);
    second.steps(config.steps - 2);
    CHECK(second.trainer.losses() == whole.trainer.losses());
    CHECK(second.parameters() == whole.parameters());
  }
}

void test_resume_refused(const Fixture& fixture) {
  const TrainConfig config = config_of(kLcsb);
  const std::string tokens = fixture.tokens(5);
  const std::string folder = fixture.folder.path();
  Run run(fixture, tokens, config);
  run.step();
  run.trainer.save_checkpoint(folder, run.data);

  const auto refuses = [&](const char* option, const std::function<void(TrainConfig&)>& change) {
    TrainConfig other = config;
    change(other);
    Run changed(fixture, tokens, other);
    CHECK_ERROR(changed.trainer.resume(folder, changed.data), std::string("the run was started with ") + option + " ");
    CHECK(changed.trainer.steps_done() == 0);
  };
  refuses("steps", [](TrainConfig& c) { c.steps = 7; });
  refuses("seq_len", [](TrainConfig& c) { c.seq_len = kSeqLen + 1; });
  refuses("batch_size", [](TrainConfig& c) { c.batch_size = 2; });
  refuses("grad_accum", [](TrainConfig& c) { c.grad_accum = 2; });
  refuses("lr", [](TrainConfig& c) { c.lr = 1e-3; });
  refuses("lr_scheduler", [](TrainConfig& c) { c.lr_scheduler = LrScheduler::kConstant; });
  refuses("warmup_steps", [](TrainConfig& c) { c.warmup_steps = 1; });
  refuses("weight_decay", [](TrainConfig& c) { c.weight_decay = 0.1; });
  refuses("max_grad_norm", [](TrainConfig& c) { c.max_grad_norm = 0; });
  refuses("unselected", [](TrainConfig& c) { c.unselected = Unselected::kSkip; });
  refuses("schedule", [](TrainConfig& c) { c.schedule.rule = &kFull; });
  refuses("selection", [](TrainConfig& c) { c.schedule.selection = Selection::kStrided; });
  refuses("ratio", [](TrainConfig& c) { c.schedule.ratio = 0.25; });
  refuses("suffix_depths", [](TrainConfig& c) { c.schedule.suffix_depths = {1}; });
  refuses("seed", [](TrainConfig& c) { c.seed = 4; });
  const TokenFile other_data(fixture.tokens(5, 2), run.model.bundle().vocab_size);
  CHECK_ERROR(run.trainer.resume(folder, other_data), "the run was started with data ");
  CHECK_ERROR(run.trainer.resume(fixture.folder / "nowhere", run.data), "nowhere/checkpoint.safetensors");
  const std::string checkpoint = folder + "/checkpoint.safetensors";
  const std::string whole = read_file(checkpoint);
  write_file(checkpoint, whole.substr(0, whole.size() / 2));
  CHECK_ERROR(run.trainer.resume(folder, run.data), "checkpoint.safetensors: ");
  save_adapter(folder, run.model.bundle(), run.model.layout(), run.model.parameters());
  std::filesystem::rename(folder + "/adapter_model.safetensors", checkpoint);
  CHECK_ERROR(run.trainer.resume(folder, run.data), "not a checkpoint of this program");
}

/// A saved adapter is what another run starts from.
void test_adapter(const Fixture& fixture) {
  const std::string tokens = fixture.tokens(1);
  const std::string folder = fixture.folder.path();
  Run run(fixture, tokens, config_of(kFull));
  run.steps(3);
  save_adapter(folder, run.model.bundle(), run.model.layout(), run.model.parameters());
  Run next(fixture, tokens, config_of(kFull), folder);
  CHECK(next.parameters() == run.parameters());
  CHECK_ERROR(Run(fixture, tokens, config_of(kFull), folder + "/none"), "none/adapter_config.json");
}

void test_budget(const Fixture& fixture) {
  const std::string tokens = fixture.tokens(1);
  TrainConfig config = config_of(kFull);
  config.budget = 1000000;
  const auto refusal = [&] { return error_of([&] { Run(fixture, tokens, config); }); };
  refusal();  // the first exception of a process makes it grow
  const std::string error = refusal();
  CHECK(contains(error, "budget 1MB is too small: this run needs "));
  const std::string needs = "needs ";
  // The process counts too, and grows a little from one plan to the next, under sanitizers above all.
  config.budget = (std::stoull(error.substr(error.find(needs) + needs.size())) + 4) * 1000000;
  CHECK(error_of([&] {
          Run run(fixture, tokens, config);
          run.step();
        }).empty());
}

void test_bad_config(const Fixture& fixture) {
  const std::string tokens = fixture.tokens(1);
  const auto refuses = [&](const char* part, const std::function<void(TrainConfig&)>& change) {
    TrainConfig config = config_of(kFull);
    change(config);
    CHECK_ERROR(Run(fixture, tokens, config).step(), part);
  };
  refuses("steps 0: must be at least 1", [](TrainConfig& c) { c.steps = 0; });
  refuses("seq_len 0: must be at least 1", [](TrainConfig& c) { c.seq_len = 0; });
  refuses("batch_size -1: must be at least 1", [](TrainConfig& c) { c.batch_size = -1; });
  refuses("grad_accum 0: must be at least 1", [](TrainConfig& c) { c.grad_accum = 0; });
  refuses("warmup_steps -1", [](TrainConfig& c) { c.warmup_steps = -1; });
  refuses("lr 0: must be above 0", [](TrainConfig& c) { c.lr = 0; });
  refuses("lr nan: must be above 0", [](TrainConfig& c) { c.lr = std::nan(""); });
  refuses("weight_decay -1", [](TrainConfig& c) { c.weight_decay = -1; });
  refuses("max_grad_norm -1", [](TrainConfig& c) { c.max_grad_norm = -1; });
  refuses("ratio 2", [](TrainConfig& c) { c.schedule.ratio = 2; });
  refuses("the bundle's maximum is ", [](TrainConfig& c) { c.batch_size = 1000000; });
  refuses("the bundle's maximum is ", [](TrainConfig& c) { c.batch_size = c.seq_len = int64_t{1} << 62; });
  refuses("holds a sequence of 16 tokens; seq_len is 15", [](TrainConfig& c) { c.seq_len = 15; });
}

}  // namespace

int main() {
  const char* bundle = test_bundle();
  if (bundle == nullptr) return 0;
  const Fixture fixture(bundle);
  test_schedules(fixture);
  test_learning_rate(fixture);
  test_one_trainer(fixture);
  test_not_finite(fixture);
  test_step_counts(fixture);
  test_unselected(fixture);
  test_prefix_cache(fixture);
  test_sensitivities(fixture);
  test_resume(fixture);
  test_resume_refused(fixture);
  test_adapter(fixture);
  test_budget(fixture);
  test_bad_config(fixture);
  return finish();
}
