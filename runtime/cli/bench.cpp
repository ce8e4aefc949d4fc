#include "runtime/cli/bench.h"

#include <algorithm>
#include <memory>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/generate/answer_times.h"
#include "runtime/train/trainer.h"

namespace mft {
namespace {

constexpr int64_t kPrompts[] = {32, 256, 1024};
constexpr int64_t kMostRepetitions = 1000000;

/// The median is that of the lower two where their number is even.
Event summary(const char* what, int64_t tokens, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[(seconds.size() - 1) / 2];
  return {{"event", "bench"},
          {"what", what},
          {"tokens", tokens},
          {"seconds", median},
          {"fastest", seconds.front()},
          {"slowest", seconds.back()},
          {"tokens_per_second", static_cast<double>(tokens) / median}};
}

std::vector<int64_t> prompts_of(const BenchConfig& config, const Bundle& bundle) {
  std::vector<int64_t> prompts;
  if (config.n_prompt.empty()) {
    for (const int64_t length : kPrompts) {
      if (length < bundle.max_seq_len - config.n_gen) prompts.push_back(length);
    }
    if (prompts.empty()) prompts.push_back(bundle.max_seq_len - config.n_gen - 1);
  } else {
    prompts = config.n_prompt;
  }
  for (const int64_t length : prompts) {
    if (length < 1 || length >= bundle.max_seq_len - config.n_gen) {
      fail("n_prompt ", length, " and n_gen ", config.n_gen, ": each must be at least 1, and their sum less than the ",
           bundle.max_seq_len, " tokens of the bundle");
    }
  }
  return prompts;
}

/// Reports how many of all measurements are done.
class Progress {
 public:
  Progress(int64_t total, const std::function<void(const Event&)>& emit) : total_(total), emit_(emit) { report(); }
  void add() { ++done_, report(); }

 private:
  void report() const { emit_({{"event", "progress"}, {"done", done_}, {"total", total_}}); }

  int64_t done_ = 0;
  const int64_t total_;
  const std::function<void(const Event&)>& emit_;
};

void bench_answers(Model& model, const BenchConfig& config, const std::vector<int64_t>& prompts, Progress& progress,
                   const std::function<void(const Event&)>& emit) {
  GenerateConfig answers;
  answers.compute = config.train.compute;
  answers.kv_bits = config.kv_bits;
  check(answers);
  model.prepare(config.adapter, Generator::prepared_tokens(model.bundle()), config.train.threads);
  Generator generator(model);
  time_answer(generator, 1, 1, answers, 0);  // maps and verifies the weights
  uint64_t run = 0;
  for (const int64_t length : prompts) {
    std::vector<double> of_prompt, of_answer;
    for (int64_t i = 0; i < config.repetitions; ++i) {
      const AnswerTimes times = time_answer(generator, length, config.n_gen, answers, ++run);
      of_prompt.push_back(times.prompt);
      of_answer.push_back(times.answer);
      progress.add();
    }
    emit(summary("prompt", length, of_prompt));
    Event answer = summary("answer", config.n_gen, of_answer);
    answer["n_prompt"] = length;
    emit(answer);
  }
}

void bench_steps(Model& model, const BenchConfig& config, Progress& progress,
                 const std::function<void(const Event&)>& emit) {
  TrainConfig train = config.train;
  train.steps = config.repetitions + 1;
  const TokenFile data(config.data, model.bundle().vocab_size);
  Trainer trainer(model, train, config.adapter, data.sequences());
  trainer.step(data);  // maps the weights
  std::vector<double> seconds;
  int64_t tokens = 0;
  for (int64_t i = 0; i < config.repetitions; ++i) {
    const double begin = now();
    tokens = trainer.step(data).tokens;
    seconds.push_back(now() - begin);
    progress.add();
  }
  emit(summary("step", tokens, seconds));
}

}  // namespace

void bench(const std::string& folder, const BenchConfig& config, const std::function<void(const Event&)>& emit) {
  if (config.n_gen < 1) fail("n_gen ", config.n_gen, ": must be at least 1");
  if (config.repetitions < 1 || config.repetitions > kMostRepetitions) {
    fail("repetitions ", config.repetitions, ": must be from 1 to ", kMostRepetitions);
  }
  auto model = std::make_unique<Model>(folder);
  const std::vector<int64_t> prompts = prompts_of(config, model->bundle());
  const auto kinds = static_cast<int64_t>(prompts.size()) + (config.data.empty() ? 0 : 1);
  Progress progress(kinds * config.repetitions, emit);
  bench_answers(*model, config, prompts, progress, emit);
  if (config.data.empty()) return;
  model = std::make_unique<Model>(folder);  // whose weights are mapped as a training's
  bench_steps(*model, config, progress, emit);
}

}  // namespace mft
