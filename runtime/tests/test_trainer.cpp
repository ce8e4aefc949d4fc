// Trainer on a real bundle, from the environment variable MFT_TEST_BUNDLE: resuming, budget, bad values.

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>

#include "runtime/tests/trainer_test.h"

using namespace mft;
using namespace mft_test;

namespace {

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
      for (const double share : shares) CHECK_NEAR(run.step().lr, share * *config.lr.value, 1e-12);
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
    CHECK_ERROR(Trainer(model, config, ""), "a trainer already uses this model");
    CHECK_ERROR(model.prepare("", 8), "a trainer uses this model; open the bundle again");
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
    config.proximal_mu = 1;
    Run run(fixture, tokens, config);
    run.step();
    run.trainer.save_checkpoint(folder, run.data);
    const std::string checkpoint = folder + "/checkpoint.safetensors";
    const std::string whole = read_file(checkpoint);
    const SafeTensors file(checkpoint);
    const float infinity = std::numeric_limits<float>::infinity();
    for (const char* name : {"adapter", "moments", "start"}) {
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
                  std::string("tensor ") + name + " has values that are not finite");
      CHECK(run.parameters() == before);
    }
    run.model.parameters()[3] = std::nanf("");
    save_adapter(folder, run.model.bundle(), run.model.layout(), run.model.parameters());
    Model other(fixture.bundle);
    CHECK_ERROR(other.prepare(folder, 8), "has values that are not finite");
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
                ": a unit has " + std::to_string(count) + " training steps; must be from 0 to 1");
  }
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
  refuses("lr", [](TrainConfig& c) { c.lr.value = 1e-3; });
  refuses("lr_scheduler", [](TrainConfig& c) { c.lr_scheduler = LrScheduler::kConstant; });
  refuses("warmup_steps", [](TrainConfig& c) { c.warmup_steps = 1; });
  refuses("weight_decay", [](TrainConfig& c) { c.weight_decay = 0.1; });
  refuses("max_grad_norm", [](TrainConfig& c) { c.max_grad_norm = 0; });
  refuses("unselected", [](TrainConfig& c) { c.unselected = Unselected::kSkip; });
  refuses("schedule", [](TrainConfig& c) { c.schedule.rule = &kFull; });
  refuses("selection", [](TrainConfig& c) { c.schedule.selection = Selection::kStrided; });
  refuses("ratio", [](TrainConfig& c) { c.schedule.ratio = 0.25; });
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
  CHECK_ERROR(run.trainer.resume(folder, run.data), "not a mobile-ft checkpoint");
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
  CHECK(contains(error, "budget 1MB is too small; this run needs "));
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
  refuses("lr 0: must be a positive number", [](TrainConfig& c) { c.lr.value = 0; });
  refuses("lr nan: must be a positive number", [](TrainConfig& c) { c.lr.value = std::nan(""); });
  refuses("weight_decay -1", [](TrainConfig& c) { c.weight_decay = -1; });
  refuses("proximal_mu -1", [](TrainConfig& c) { c.proximal_mu = -1; });
  refuses("proximal_mu inf", [](TrainConfig& c) { c.proximal_mu = std::numeric_limits<double>::infinity(); });
  refuses("max_grad_norm -1", [](TrainConfig& c) { c.max_grad_norm = -1; });
  refuses("ratio 2: must be above 0", [](TrainConfig& c) {
    c.schedule.rule = &kLcsb;
    c.schedule.ratio = 2;
  });
  refuses("the bundle's maximum is ", [](TrainConfig& c) { c.batch_size = 1000000; });
  refuses("the bundle's maximum is ", [](TrainConfig& c) { c.batch_size = c.seq_len = int64_t{1} << 62; });
  refuses("contains a sequence of 16 tokens; seq_len is 15", [](TrainConfig& c) { c.seq_len = 15; });
}

}  // namespace

int main() {
  const char* bundle = test_bundle();
  if (bundle == nullptr) return 0;
  const Fixture fixture(bundle);
  test_learning_rate(fixture);
  test_one_trainer(fixture);
  test_not_finite(fixture);
  test_step_counts(fixture);
  test_resume(fixture);
  test_resume_refused(fixture);
  test_adapter(fixture);
  test_budget(fixture);
  test_bad_config(fixture);
  return finish();
}
