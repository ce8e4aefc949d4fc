/// mft-run: trains, evaluates and generates from a bundle, with no Python anywhere. Results are JSON lines on standard
/// output, one event a line; an error is one line on standard error and exit code 1.

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "runtime/cli/options.h"
#include "runtime/core/error.h"
#include "runtime/core/file.h"
#include "runtime/core/generator.h"
#include "runtime/core/memory_limit.h"
#include "runtime/core/process_memory.h"
#include "runtime/core/trace.h"
#include "runtime/core/trainer.h"
#include "runtime/ops/counters.h"

namespace mft {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr const char* kUsage =
    "usage: mft-run train BUNDLE --data TOKENS --out DIR [options]\n"
    "       mft-run plan BUNDLE [options of train]\n"
    "       mft-run eval BUNDLE --data TOKENS [--adapter DIR]\n"
    "       mft-run generate BUNDLE --prompt-tokens 1,2,3 [--adapter DIR] [options]\n"
    "TOKENS is a token file (docs/bundle_format.md); `mobile-ft` makes one from text.\n";

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }
double megabytes(uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

void emit(const Json& event) { std::cout << event.dump() << std::endl; }

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

TrainConfig train_config(const Options& options) {
  TrainConfig c;
  c.steps = options.integer("steps");
  c.seq_len = options.integer("seq-len");
  c.batch_size = options.integer("batch-size");
  c.grad_accum = options.integer("grad-accum");
  c.lr = options.real("lr");
  c.cosine = options.choice("lr-scheduler", {"cosine", "constant"}) == 0;
  c.warmup_steps = options.integer("warmup-steps");
  c.weight_decay = options.real("weight-decay");
  c.max_grad_norm = options.real("max-grad-norm");
  c.skip_unselected = options.choice("unselected", {"momentum", "skip"}) == 1;
  c.optimizer = static_cast<Optimizer>(options.choice("optimizer", {"adamw", "adamw8bit"}));
  c.schedule.kind = static_cast<Schedule::Kind>(options.choice("schedule", {"full", "lcsb", "suffix"}));
  c.schedule.selection =
      static_cast<Schedule::Selection>(options.choice("selection", {"contiguous", "strided", "random"}));
  c.schedule.ratio = options.real("ratio");
  c.schedule.suffix_depths = options.integers("suffix-depths");
  c.backward = static_cast<Backward>(options.choice("backward", {"auto", "store", "recompute"}));
  c.seed = static_cast<uint64_t>(options.integer("seed"));
  c.schedule.seed = c.seed;
  c.budget = options.bytes("budget");
  c.spill_folder = options.text("out");
  return c;
}

const std::map<std::string, std::string> kTrainOptions = {
    {"data", ""},           {"out", "."},          {"adapter", ""},
    {"steps", "100"},       {"seq-len", "256"},    {"batch-size", "1"},
    {"grad-accum", "1"},    {"lr", "2e-4"},        {"lr-scheduler", "cosine"},
    {"warmup-steps", "0"},  {"weight-decay", "0"}, {"max-grad-norm", "1"},
    {"optimizer", "adamw"}, {"schedule", "full"},  {"selection", "random"},
    {"ratio", "0.5"},       {"suffix-depths", ""}, {"unselected", "momentum"},
    {"backward", "auto"},   {"budget", ""},        {"save-every", "100"},
    {"seed", "0"},          {"trace", ""},         {"resume", "flag"}};

Json described(const Plan& plan, const TrainConfig& config) {
  Json components = Json::object(), anonymous = Json::array();
  for (const Plan::Component& c : plan.components) {
    components[c.name] = megabytes(c.bytes);
    if (c.anonymous) anonymous.push_back(c.name);
  }
  return {{"event", "plan"},
          {"planned_mb", megabytes(plan.total())},
          {"planned_anon_mb", megabytes(plan.anonymous())},
          {"budget_mb", config.budget ? Json(megabytes(config.budget)) : Json(nullptr)},
          {"components_mb", components},
          {"anonymous", anonymous},
          {"stored_attn", plan.stored_attn},
          {"stored_mlp", plan.stored_mlp},
          {"checkpoints", plan.checkpoints},
          {"spilled", plan.spilled},
          {"resident_units", plan.resident},
          {"relative_time", plan.relative_time}};
}

int plan(const std::vector<std::string>& arguments) {
  const Options options(arguments, kTrainOptions);
  const TrainConfig config = train_config(options);
  const Model model(options.bundle());
  Json event = described(plan_training(model, config), config);
  TrainConfig smallest = config;
  smallest.budget = 1;
  event["smallest_budget_mb"] = megabytes(plan_training(model, smallest).total());
  event["longest_seq_len"] = longest_sequence(model, config);
  emit(event);
  return 0;
}

volatile std::sig_atomic_t stop_signal = 0;

/// From now on a signal to end lets the step in progress come to its end.
void stop_between_steps() {
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int s) { stop_signal = s; });
}

/// Why training cannot go on, empty if it can: a signal, or a memory limit that was lowered meanwhile.
std::string reason_to_stop(const Plan& plan) {
  if (stop_signal != 0) return "stopped by signal " + std::to_string(stop_signal);
  const uint64_t limit = memory_limit();
  if (limit == 0 || limit >= plan.anonymous()) return "";
  return "the memory limit is " + std::to_string(limit / 1000000) + "MB now and this run needs " +
         std::to_string(plan.anonymous() / 1000000 + 1) + "MB that cannot be dropped";
}

int train(const std::vector<std::string>& arguments) {
  const Options options(arguments, kTrainOptions);
  const TrainConfig config = train_config(options);
  const std::string& out = options.required("out");
  const int64_t save_every = options.integer("save-every");
  if (save_every < 1) fail("--save-every ", save_every, ": must be at least 1");
  const bool resume = options.flag("resume");
  const std::string checkpoint = out + "/checkpoint.safetensors";
  if (resume && !file_exists(checkpoint)) fail(checkpoint, ": no such file; nothing to resume there");
  if (!resume && file_exists(checkpoint)) {
    fail(out, ": holds the checkpoint of an earlier run; give --resume to go on, or another --out");
  }
  make_folder(out);
  Model model(options.bundle());
  const TokenFile data(options.required("data"), model.bundle().vocab_size);
  Trainer trainer(model, config, options.text("adapter"));
  if (resume) trainer.resume(out, data);
  std::optional<Trace> trace;
  if (!options.text("trace").empty()) {
    trace.emplace(options.text("trace"), trainer);
    model.observe([&](const auto&... call) { trace->method(call...); });
  }
  Json planned = described(trainer.plan(), config);
  planned["steps_done"] = trainer.steps_done();
  emit(planned);

  stop_between_steps();
  reset_peak_rss();
  uint64_t peak_anon = 0;
  std::vector<double> seconds;
  int64_t tokens = 0;
  while (trainer.steps_done() < config.steps) {
    const auto start = Clock::now();
    const StepResult result = trainer.step(data);
    seconds.push_back(seconds_since(start));
    tokens += result.tokens;
    const ProcessMemory memory = process_memory();  // nothing of a step is freed within it, so this is its peak
    peak_anon = std::max(peak_anon, memory.anon);
    emit({{"event", "step"},
          {"step", result.step},
          {"loss", result.loss},
          {"grad_norm", result.grad_norm},
          {"lr", result.lr},
          {"tokens", result.tokens},
          {"seconds", seconds.back()},
          {"backward_units", result.backward_units},
          {"rss_mb", megabytes(memory.rss)},
          {"anon_mb", megabytes(memory.anon)}});
    const std::string reason = trainer.steps_done() < config.steps ? reason_to_stop(trainer.plan()) : "";
    if (!reason.empty() || trainer.steps_done() % save_every == 0 || trainer.steps_done() == config.steps) {
      // The adapter first: killed in between, a resumed run comes here again and writes it again.
      save_adapter(out, model.bundle(), model.layout(), model.parameters());
      trainer.save_checkpoint(out, data);
      emit({{"event", "saved"}, {"step", result.step}, {"path", out}});
    }
    if (!reason.empty()) {
      fail(reason, "; step ", trainer.steps_done(), " is saved in ", out, ", go on with --resume",
           stop_signal == 0 ? " and a smaller --budget" : "");
    }
  }
  Json op_seconds = Json::object();
  for (const OpCounter& op : op_counters()) {
    if (op.calls > 0) op_seconds[op.name] = {{"calls", op.calls}, {"seconds", op.seconds}};
  }
  Json method_seconds = Json::object();
  for (const auto& [name, time] : model.program().times()) {
    method_seconds[name] = {{"calls", time.first}, {"seconds", time.second}};
  }
  const auto& losses = trainer.losses();
  double total = 0;
  for (double s : seconds) total += s;
  emit({{"event", "done"},
        {"steps", trainer.steps_done()},
        {"tokens", tokens},
        {"losses", losses},
        {"loss_first", losses.front()},
        {"loss_last", losses.back()},
        {"step_seconds_median", median(seconds)},
        {"tokens_per_second", total > 0 ? static_cast<double>(tokens) / total : 0},
        {"peak_rss_mb", megabytes(process_memory().peak_rss)},
        {"peak_anon_mb", megabytes(peak_anon)},
        {"planned_mb", megabytes(trainer.plan().total())},
        {"budget_mb", config.budget ? Json(megabytes(config.budget)) : Json(nullptr)},
        {"schedule", config.schedule.name()},
        {"ratio", config.schedule.kind == Schedule::Kind::kFull ? 1.0 : config.schedule.ratio},
        {"backward", options.text("backward")},
        {"planned_anon_mb", megabytes(trainer.plan().anonymous())},
        {"stored_attn", trainer.plan().stored_attn},
        {"stored_mlp", trainer.plan().stored_mlp},
        {"spilled", trainer.plan().spilled},
        {"optimizer", options.text("optimizer")},
        {"seq_len", config.seq_len},
        {"backward_runs", trainer.backward_runs()},
        {"method_seconds", method_seconds},
        {"op_seconds", op_seconds}});
  return 0;
}

int eval(const std::vector<std::string>& arguments) {
  const Options options(arguments, {{"data", ""}, {"adapter", ""}});
  Model model(options.bundle());
  const TokenFile data(options.required("data"), model.bundle().vocab_size);
  model.prepare(options.text("adapter"), data.longest());
  const auto [loss, targets] = evaluate(model, data, [](int64_t done, int64_t total) {
    emit({{"event", "progress"}, {"done", done}, {"total", total}});
  });
  if (targets == 0) fail(data.path(), ": no targets to evaluate");
  const double mean = loss / static_cast<double>(targets);
  emit({{"event", "done"},
        {"loss", mean},
        {"ppl", std::exp(mean)},
        {"tokens", targets},
        {"peak_rss_mb", megabytes(process_memory().peak_rss)}});
  return 0;
}

int generate(const std::vector<std::string>& arguments) {
  const Options options(arguments, {{"prompt-tokens", ""},
                                    {"stop-tokens", ""},
                                    {"adapter", ""},
                                    {"max-tokens", "100"},
                                    {"temp", "0"},
                                    {"seed", "0"}});
  Model model(options.bundle());
  std::vector<int64_t> tokens = options.integers("prompt-tokens");
  const std::vector<int64_t> stop = options.integers("stop-tokens");
  for (int64_t token : tokens) {
    if (token < 0 || token >= model.bundle().vocab_size) fail("--prompt-tokens: ", token, " is not in the vocabulary");
  }
  const int64_t prompt = static_cast<int64_t>(tokens.size());
  if (prompt >= model.bundle().max_seq_len) {
    fail("the prompt has ", prompt, " tokens; the bundle's maximum is ", model.bundle().max_seq_len,
         " with the answer (export with a larger --max-seq-len)");
  }
  model.prepare(options.text("adapter"), std::max<int64_t>(1, prompt));
  Generator generator(model, prompt, options.real("temp"), static_cast<uint64_t>(options.integer("seed")));
  const int64_t most = std::min(options.integer("max-tokens"), model.bundle().max_seq_len - prompt);
  int64_t count = 0;
  const auto start = Clock::now();
  for (; count < most; ++count) {
    const int64_t token = generator.next(tokens);
    if (std::find(stop.begin(), stop.end(), token) != stop.end()) break;
    emit({{"event", "token"}, {"id", token}});
    tokens = {token};
  }
  emit({{"event", "done"},
        {"tokens", count},
        {"seconds", seconds_since(start)},
        {"peak_rss_mb", megabytes(process_memory().peak_rss)}});
  return 0;
}

int run(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  const std::vector<std::string> arguments(argv + std::min(argc, 2), argv + argc);
  if (command == "train") return train(arguments);
  if (command == "plan") return plan(arguments);
  if (command == "eval") return eval(arguments);
  if (command == "generate") return generate(arguments);
  std::fputs(kUsage, stderr);
  return 2;
}

}  // namespace
}  // namespace mft

int main(int argc, char** argv) {
  try {
    return mft::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "mft-run: error: " << error.what() << std::endl;
    return 1;
  }
}
