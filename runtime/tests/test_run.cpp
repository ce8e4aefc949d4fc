// The policy of a run, on a real bundle from the environment variable MFT_TEST_BUNDLE: what is saved when, what ends
// it, and that a run that ended goes on to the same numbers.

#include <limits>
#include <thread>

#include "runtime/base/random.h"
#include "runtime/tests/test_support.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/run.h"

using namespace mft;
using namespace mft_test;

namespace {

constexpr int64_t kSeqLen = 16;

struct Fixture {
  std::string bundle;
  TempFolder folder;

  std::string tokens(int64_t sequences, uint64_t seed) const {
    const int64_t vocabulary = Bundle(bundle).vocab_size;
    Random random(seed, 0);
    TokenTensors t;
    for (int64_t s = 0; s < sequences; ++s) {
      std::vector<int32_t> row;
      for (int64_t i = 0; i < kSeqLen; ++i) {
        row.push_back(static_cast<int32_t>(random.next() % static_cast<uint64_t>(vocabulary)));
      }
      t.add(row, row.front());
    }
    const std::string path = folder / ("tokens" + std::to_string(sequences) + "_" + std::to_string(seed));
    t.write(path);
    return path;
  }

  RunPaths paths(const std::string& out) const {
    RunPaths paths;
    paths.data = tokens(4, 1);
    paths.out = folder / out;
    return paths;
  }

  RunPaths with_valid(const std::string& out) const {
    RunPaths paths = this->paths(out);
    paths.valid = tokens(3, 2);
    return paths;
  }
};

TrainConfig config_of(int64_t steps) {
  TrainConfig config;
  config.steps = steps;
  config.seq_len = kSeqLen;
  config.lr.value = 5e-3;
  config.lr_scheduler = LrScheduler::kConstant;
  return config;
}

/// All events of a run, and what ended it early, if anything did.
struct Result {
  std::vector<Event> events;
  std::string stopped;

  std::vector<Event> of(const std::string& kind) const {
    std::vector<Event> some;
    for (const Event& event : events) {
      if (event.at("event") == kind) some.push_back(event);
    }
    return some;
  }
};

template <typename OnEvent>
Result run(const Fixture& fixture, const TrainConfig& config, const RunPaths& paths, StopRequest& stop,
           const OnEvent& on_event) {
  Result result;
  Model model(fixture.bundle);
  try {
    Run run(model, config, paths, [&](const Event& event) {
      result.events.push_back(event);
      on_event(event);
    });
    while (run.step(stop)) {
    }
  } catch (const Stopped& stopped) {
    result.stopped = stopped.what();
  }
  return result;
}

Result run(const Fixture& fixture, const TrainConfig& config, const RunPaths& paths) {
  StopRequest stop;
  return run(fixture, config, paths, stop, [](const Event&) {});
}

void test_saves(const Fixture& fixture) {
  TrainConfig config = config_of(7);
  config.save_every = 3;
  const RunPaths paths = fixture.paths("saves");
  const Result result = run(fixture, config, paths);
  const auto saved = result.of("saved");
  CHECK(saved.size() == 3);
  CHECK(saved.at(0).at("step") == 3 && saved.at(1).at("step") == 6 && saved.at(2).at("step") == 7);
  CHECK(result.events.front().at("event") == "plan" && result.events.back().at("event") == "done");
  CHECK(result.of("step").size() == 7 && result.of("eval").empty());
  CHECK(!file_exists(paths.out + "/best"));
  CHECK_ERROR(run(fixture, config, paths), "contains the checkpoint of an earlier run");
  RunPaths nowhere = fixture.paths("nowhere");
  nowhere.resume = true;
  CHECK_ERROR(run(fixture, config, nowhere), "there is nothing to resume");
}

/// Cancelled from another thread while a step runs: that step's end is saved, and what comes after a resume is what
/// would have come, validations included.
void test_cancel(const Fixture& fixture) {
  TrainConfig config = config_of(9);
  config.eval_every = 2;
  const Result whole = run(fixture, config, fixture.with_valid("whole"));

  RunPaths paths = fixture.with_valid("cancelled");
  StopRequest stop;
  const Result first = run(fixture, config, paths, stop, [&](const Event& event) {
    if (event.at("event") == "step" && event.at("step") == 4) std::thread([&] { stop.cancel(); }).join();
  });
  CHECK(contains(first.stopped, "cancelled; step 4 is saved in "));
  CHECK(first.of("stopped").size() == 1 && first.of("stopped").at(0).at("step") == 4);
  CHECK(first.of("saved").size() == 1 && first.of("done").empty());
  paths.resume = true;
  const Result second = run(fixture, config, paths);
  CHECK(second.stopped.empty());
  CHECK(second.of("plan").at(0).at("steps_done") == 4);
  for (const char* key : {"losses", "evals", "best_step", "best_loss"}) {
    CHECK(second.events.back().at(key) == whole.events.back().at(key));
  }
  for (const char* file :
       {"/adapter_model.safetensors", "/best/adapter_model.safetensors", "/checkpoint.safetensors"}) {
    CHECK(read_file(paths.out + file) == read_file(fixture.folder / "whole" + file));
  }
}

void test_signal(const Fixture& fixture) {
  StopRequest stop;
  stop.signal(15);
  const Result result = run(fixture, config_of(5), fixture.paths("signal"), stop, [](const Event&) {});
  CHECK(contains(result.stopped, "stopped by signal 15; step 1 is saved"));
  StopRequest late;  // asked for in the last step, there is nothing left to stop
  const Result done = run(fixture, config_of(3), fixture.paths("late"), late, [&](const Event& event) {
    if (event.at("event") == "step" && event.at("step") == 3) late.cancel();
  });
  CHECK(done.stopped.empty() && done.of("done").size() == 1);
}

/// On four random sequences the validation loss falls, then rises: the run ends `patience` validations after the best,
/// whose adapter is kept.
void test_patience(const Fixture& fixture) {
  TrainConfig config = config_of(400);
  config.lr.value = 2e-2;
  config.eval_every = 5;
  config.patience = 3;
  RunPaths paths = fixture.with_valid("patience");
  const Result result = run(fixture, config, paths);
  const Event done = result.events.back();
  CHECK(done.at("stopped") == "patience");
  CHECK(done.at("steps") < 400);
  const auto evals = result.of("eval");
  int64_t best_step = 0;
  double best = std::numeric_limits<double>::infinity();
  for (const Event& eval : evals) {
    const double loss = eval.at("loss");
    CHECK(eval.at("best") == (loss < best));
    if (loss < best) {
      best = loss;
      best_step = eval.at("step");
    }
  }
  CHECK(done.at("best_step") == best_step && done.at("best_loss") == best);
  CHECK(done.at("steps") == best_step + 3 * config.eval_every);

  // The adapter in best/ has that loss, the one beside it the last.
  Model model(fixture.bundle);
  const TokenFile valid(paths.valid, model.bundle().vocab_size);
  const auto loss_of = [&](const std::string& adapter) {
    model.prepare(adapter, kSeqLen);
    const size_t size = static_cast<size_t>(kSeqLen * model.bundle().hidden_size);
    std::vector<float> buffer(2 * size);
    const LossSum sum = evaluate(model, valid, TrainConfig(), nullptr, buffer.data(), buffer.data() + size);
    return sum.loss / static_cast<double>(sum.count);
  };
  CHECK_NEAR(loss_of(paths.out + "/best"), best, 1e-6);
  CHECK_NEAR(loss_of(paths.out), evals.back().at("loss").get<double>(), 1e-6);
  CHECK(loss_of(paths.out) > best);

  // It has ended for good, unless it is given more patience.
  const std::string saved = read_file(paths.out + "/checkpoint.safetensors");
  paths.resume = true;
  const Result again = run(fixture, config, paths);
  CHECK(again.of("step").empty() && again.events.back().at("stopped") == "patience");
  CHECK(read_file(paths.out + "/checkpoint.safetensors") == saved);
  config.patience = 4;
  CHECK(run(fixture, config, paths).of("step").size() >= static_cast<size_t>(config.eval_every));
}

/// What the plan event says of a run makes the same run again.
void test_repeat(const Fixture& fixture) {
  TrainConfig config = make_train_config({{"epochs", "2.5"},
                                          {"warmup_ratio", "0.2"},
                                          {"seq_len", std::to_string(kSeqLen)},
                                          {"schedule", "lcsb"},
                                          {"lr", "3e-3"},
                                          {"seed", "9"}});
  const Result first = run(fixture, config, fixture.paths("repeat1"));
  const Event plan = first.events.front();
  CHECK(plan.at("steps") == 10);
  auto options = plan.at("options").get<std::map<std::string, std::string>>();
  const auto resolved = plan.at("resolved").get<std::map<std::string, std::string>>();
  CHECK(options.at("warmup_steps") == "2" && options.at("compute") != "auto");
  for (const auto& [name, value] : resolved) options[name] = value;
  const Result second = run(fixture, make_train_config(options), fixture.paths("repeat2"));
  CHECK(first.events.back().at("losses") == second.events.back().at("losses"));
}

/// What is not given is as the checkpoint says, whatever the defaults are.
void test_resumed_options(const Fixture& fixture) {
  const std::map<std::string, std::string> given = {
      {"epochs", "1"}, {"seq_len", std::to_string(kSeqLen)}, {"lr", "2e-4"}, {"warmup_ratio", "0.5"}};
  RunPaths paths = fixture.paths("options");
  CHECK(resumed_options(paths.out, given) == given);  // nothing is there yet
  const Result first = run(fixture, make_train_config(given), paths);
  const auto all = resumed_options(paths.out, {});
  CHECK(all.at("lr") == "2e-04" && all.at("warmup_steps") == "2" && all.at("steps") == "4");
  CHECK(all.count("budget") == 0 && all.count("epochs") == 0);
  paths.resume = true;
  for (const auto& again : {std::map<std::string, std::string>(), given}) {
    const Result resumed = run(fixture, make_train_config(resumed_options(paths.out, again)), paths);
    CHECK(resumed.events.back().at("losses") == first.events.back().at("losses"));
  }
  CHECK_ERROR(run(fixture, make_train_config(resumed_options(paths.out, {{"lr", "3e-4"}})), paths),
              "started with lr 2e-04, not 3e-04");
}

void test_refusals(const Fixture& fixture) {
  TrainConfig config = config_of(2);
  config.eval_every = 1;
  RunPaths paths = fixture.paths("refused");
  CHECK_ERROR(run(fixture, config, paths), "eval_every 1: requires validation data");
  paths = fixture.with_valid("refused");
  TrainConfig shorter = config;
  shorter.seq_len = kSeqLen;
  CHECK(run(fixture, shorter, fixture.with_valid("fine")).of("eval").size() == 2);
  TokenTensors longer;
  longer.add(std::vector<int32_t>(kSeqLen + 1, 3), 3);
  longer.write(fixture.folder / "longer");
  paths.valid = fixture.folder / "longer";
  CHECK_ERROR(run(fixture, config, paths), "longer: contains a sequence of 17 tokens");  // before the first step
  CHECK(!file_exists(paths.out + "/checkpoint.safetensors"));
  config.eval_every = 0;
  CHECK_ERROR(run(fixture, config, paths), "validation data requires eval_every");
  paths.valid.clear();
  config.warmup_ratio = 10;
  CHECK_ERROR(run(fixture, config, paths), "warmup_ratio 10: must be at least 0 and below 1");
  config.warmup_ratio = 0.5;
  config.warmup_steps = 1;
  CHECK_ERROR(run(fixture, config, paths), "warmup_ratio 0.5: set either warmup_ratio or warmup_steps");
  config.warmup_ratio = 0;
  config.warmup_steps = 0;
  config.patience = 1;
  CHECK_ERROR(run(fixture, config, paths), "patience 1: requires eval_every");
  config.patience = 0;
  config.loss = Loss::kDpo;
  CHECK_ERROR(run(fixture, config, paths), "contains texts (loss sft); loss dpo needs preference pairs");
  config.loss = Loss::kSft;
  config.sft_weight = 1;
  CHECK_ERROR(run(fixture, config, paths), "sft_weight 1: loss sft does not use it");
  config.sft_weight.reset();
  config.beta = 0.5;
  CHECK_ERROR(run(fixture, config, paths), "beta 0.5: loss sft does not use it");
  config.loss = Loss::kIpo;
  config.label_smoothing = 0.1;
  CHECK_ERROR(run(fixture, config, paths), "label_smoothing 0.1: loss ipo does not use it, only dpo and simpo");
  config.label_smoothing = 0;
  config.simpo_gamma = 1;
  CHECK_ERROR(run(fixture, config, paths), "simpo_gamma 1: loss ipo does not use it, only simpo");
}

}  // namespace

int main() {
  const char* bundle = test_bundle();
  if (bundle == nullptr) return 0;
  const Fixture fixture{bundle, {}};
  test_saves(fixture);
  test_cancel(fixture);
  test_signal(fixture);
  test_patience(fixture);
  test_repeat(fixture);
  test_resumed_options(fixture);
  test_refusals(fixture);
  return finish();
}
