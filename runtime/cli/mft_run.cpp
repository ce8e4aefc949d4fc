/// mft-run: trains, evaluates and generates from a bundle, without Python. Results are events on standard output, one
/// JSON object per line. An error is one line on standard error and exit status 1.

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <map>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/bundle/signature.h"
#include "runtime/cli/arguments.h"
#include "runtime/cli/bench.h"
#include "runtime/data/dataset.h"
#include "runtime/generate/generator.h"
#include "runtime/learn/learner.h"
#include "runtime/platform/process.h"
#include "runtime/platform/process_memory.h"
#include "runtime/text/bundle_text.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/run.h"

namespace mft {
namespace {

using Word = Arguments::Word;

constexpr const char* kUsage =
    "usage: mft-run tokens BUNDLE --data ROWS --out TOKENS [--seq-len N] [--seed N] [--loss LOSS]\n"
    "                      [--mask-prompt true|false] [--assistant-turns all|last] [--chat-template-kwargs JSON] ...\n"
    "       mft-run train BUNDLE --data TOKENS --out DIR [--valid TOKENS] [--adapter DIR] [--resume] [options]\n"
    "       mft-run plan BUNDLE [options of train] [--variant NAME=VALUE,NAME=VALUE ...] [--throughput N,N,N,N,N]\n"
    "       mft-run eval BUNDLE --data TOKENS [--adapter DIR]\n"
    "       mft-run generate BUNDLE --prompt TEXT [--adapter DIR] [options]\n"
    "       mft-run generate BUNDLE --prompt-tokens 1,2,3 [--stop-tokens 0] [--adapter DIR] [options]\n"
    "       mft-run bench BUNDLE [--n-prompt 32,256,1024] [--n-gen 64] [--repetitions 5] [--kv-bits 16] [--adapter "
    "DIR]\n"
    "                     [--data TOKENS] [options of train]\n"
    "       mft-run learn BUNDLE --state STATE --data ROWS [options of learn]\n"
    "       mft-run learn BUNDLE --state STATE --forget ID [--forget ID ...]\n"
    "       mft-run versions STATE [--rollback N]\n"
    "       mft-run options\n"
    "ROWS is a .jsonl file in the format of `mobile-ft train`. TOKENS is a token file\n"
    "(docs/reference/bundle_format.md).\n"
    "With --trust KEY (a public Ed25519 key in PEM), only bundles that are signed with it are accepted.\n";

constexpr size_t kMostKeyBytes = 4096;

StopRequest stop;

/// Prints an event as a line. If the reader has closed the pipe, the run ends with a checkpoint.
void emit(const Event& event) {
  std::cout << text_of(event) << std::endl;
  if (!std::cout) stop.signal(SIGPIPE);
}

/// Makes signals end the run after the current step.
void stop_between_steps() {
  const auto end = [](int signal) { stop.signal(signal); };
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) std::signal(signal, end);
  if (std::signal(SIGHUP, SIG_IGN) != SIG_IGN) std::signal(SIGHUP, end);  // stays ignored under nohup
}

/// Calls `read_value`, and adds the word to its error.
template <typename T>
void read_word(const char* word, const std::string& text, T& value) {
  try {
    read_value(text, value);
  } catch (const Error& error) {
    fail("--", word, " ", text, ": ", error.what());
  }
}

/// With `--parent`, makes this process end, as by SIGTERM, when the parent process ends.
void end_with_parent(const Arguments& arguments) {
  const std::string parent = arguments.text("parent");
  if (parent.empty()) return;
  int64_t pid = 0;
  read_word("parent", parent, pid);
  end_with_process(pid);
}

/// Returns the bundle's folder. With `--trust`, bundles must be signed from now on.
std::string trusted_bundle(const Arguments& arguments) {
  const std::string file = arguments.text("trust");
  if (!file.empty()) {
    const std::string pem = read_text(file, kMostKeyBytes);
    try {
      trust_key(pem);
    } catch (const Error& error) {
      fail("--trust ", file, ": ", error.what());
    }
  }
  return arguments.argument();
}

/// Returns the options that affect tokenization.
std::vector<std::string> token_options() {
  std::vector<std::string> names = {"seq_len", "seed", "loss"};
  for (const Option<DataConfig>& option : data_options()) names.push_back(option.name);
  return names;
}

int tokens(const std::vector<std::string>& argv) {
  const Arguments arguments(argv, {{"data", Word::kValue}, {"out", Word::kValue}, {"trust", Word::kValue}},
                            token_options());
  const TrainConfig config = make_train_config(arguments.options());
  const std::string data = arguments.required("data");
  if (!file_exists(data)) fail("--data ", data, ": not found");
  const DataStats stats =
      Dataset(trusted_bundle(arguments), data).write_tokens(arguments.required("out"), config, LinesOf::kOthers);
  emit({{"event", "done"},
        {"rows", stats.rows},
        {"sequences", stats.sequences},
        {"tokens", stats.tokens},
        {"target_tokens", stats.target_tokens},
        {"truncated", stats.truncated},
        {"dropped", stats.dropped},
        {"bad", stats.bad}});
  return 0;
}

int train(const std::vector<std::string>& argv) {
  const Arguments arguments(argv,
                            {{"data", Word::kValue},
                             {"valid", Word::kValue},
                             {"out", Word::kValue},
                             {"adapter", Word::kValue},
                             {"trace", Word::kValue},
                             {"trust", Word::kValue},
                             {"parent", Word::kValue},
                             {"resume", Word::kFlag}},
                            train_options());
  RunPaths paths;
  paths.data = arguments.required("data");
  paths.valid = arguments.text("valid");
  paths.out = arguments.required("out");
  paths.adapter = arguments.text("adapter");
  paths.trace = arguments.text("trace");
  paths.resume = arguments.flag("resume");
  const TrainConfig config =
      make_train_config(paths.resume ? resumed_options(paths.out, arguments.options()) : arguments.options());
  stop_between_steps();
  end_with_parent(arguments);
  Model model(trusted_bundle(arguments));
  Run run(model, config, paths, emit);
  while (run.step(stop)) {
  }
  return 0;
}

/// Returns the plan of `config`, the smallest budget that works, and the longest sequence within the budget, for this
/// machine or for the given throughput.
Event planned(const Model& model, const TrainConfig& config, const std::optional<Throughput>& others) {
  const Throughput throughput = others ? *others : measured_throughput(config, model.bundle());
  const ProcessMemory now = process_memory();
  Event event = describe(plan_training(model, config, now, throughput), config);
  TrainConfig smallest = config;
  smallest.budget = 1;
  event["smallest_budget_mb"] = megabytes(plan_training(model, smallest, now, throughput).total() + kStartSpread);
  event["longest_seq_len"] = longest_sequence(model, config, throughput);
  return event;
}

int plan(const std::vector<std::string>& argv) {
  const Arguments arguments(argv,
                            {{"out", Word::kValue},
                             {"variant", Word::kRepeated},
                             {"throughput", Word::kValue},
                             {"trust", Word::kValue},
                             {"parent", Word::kValue}},
                            train_options());
  end_with_parent(arguments);
  TrainConfig config = make_train_config(arguments.options());
  config.offload_folder = arguments.text("out").empty() ? "." : arguments.text("out");
  std::optional<Throughput> throughput;
  if (!arguments.text("throughput").empty())
    read_word("throughput", arguments.text("throughput"), throughput.emplace());
  const Model model(trusted_bundle(arguments));
  emit(planned(model, config, throughput));
  for (const std::string& variant : arguments.all("variant")) {
    TrainConfig changed = config;
    for (size_t begin = 0; begin < variant.size();) {
      const size_t end = std::min(variant.find(',', begin), variant.size());
      const std::string change = variant.substr(begin, end - begin);
      const size_t equals = change.find('=');
      if (equals == std::string::npos)
        fail("--variant ", variant, ": must be a list of name=value separated by commas");
      set_option(train_options(), changed, underscored(change.substr(0, equals)), change.substr(equals + 1));
      begin = end + 1;
    }
    Event event = planned(model, changed, throughput);
    event["variant"] = variant;
    emit(event);
  }
  return 0;
}

int eval(const std::vector<std::string>& argv) {
  const Arguments arguments(
      argv, {{"data", Word::kValue}, {"adapter", Word::kValue}, {"trust", Word::kValue}, {"parent", Word::kValue}},
      std::vector<std::string>());
  end_with_parent(arguments);
  Model model(trusted_bundle(arguments));
  const LossSum sum = evaluate_file(
      model, arguments.text("adapter"), arguments.required("data"), [](int64_t sequence, const LossSum& loss) {
        emit({{"event", "progress"}, {"done", sequence + 1}, {"loss", loss.loss}, {"targets", loss.count}});
      });
  const double mean = sum.loss / static_cast<double>(sum.count);
  emit({{"event", "done"},
        {"loss", mean},
        {"ppl", std::exp(mean)},
        {"tokens", sum.count},
        {"peak_rss_mb", megabytes(process_memory().peak_rss)}});
  return 0;
}

int generate(const std::vector<std::string>& argv) {
  const Arguments arguments(argv,
                            {{"prompt", Word::kValue},
                             {"prompt-tokens", Word::kValue},
                             {"stop-tokens", Word::kValue},
                             {"adapter", Word::kValue},
                             {"trust", Word::kValue},
                             {"parent", Word::kValue}},
                            generate_options());
  end_with_parent(arguments);
  GenerateConfig config = make_generate_config(arguments.options());
  std::vector<int64_t> prompt;
  std::optional<BundleText> text;
  if (!arguments.text("prompt").empty()) {
    if (!arguments.text("prompt-tokens").empty() || !arguments.text("stop-tokens").empty()) {
      fail("--prompt: cannot be combined with --prompt-tokens or --stop-tokens");
    }
    text.emplace(Bundle(trusted_bundle(arguments)));
    Chat chat;
    chat.add("user", arguments.text("prompt"));
    prompt = text->prompt(chat, {config.chat_template_kwargs, ""});
    config.stop_tokens = text->end_tokens();
  } else {
    if (!config.chat_template_kwargs.empty()) {
      fail("--chat-template-kwargs: requires --prompt; --prompt-tokens are not rendered");
    }
    read_word("prompt-tokens", arguments.text("prompt-tokens"), prompt);
    read_word("stop-tokens", arguments.text("stop-tokens"), config.stop_tokens);
  }
  Model model(trusted_bundle(arguments));
  model.prepare(arguments.text("adapter"), Generator::prepared_tokens(model.bundle()));
  Generator generator(model);
  const auto start = std::chrono::steady_clock::now();
  const std::vector<int64_t> answer = generator.generate(prompt, config, [](int64_t token) {
    emit({{"event", "token"}, {"id", token}});
    return true;
  });
  if (text) emit({{"event", "answer"}, {"text", text->tokenizer().decode(answer, true)}});
  emit({{"event", "done"},
        {"tokens", answer.size()},
        {"seconds", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()},
        {"peak_rss_mb", megabytes(process_memory().peak_rss)},
        {"anon_mb", megabytes(process_memory().anon)}});
  return 0;
}

int bench(const std::vector<std::string>& argv) {
  const Arguments arguments(argv,
                            {{"n-prompt", Word::kValue},
                             {"n-gen", Word::kValue},
                             {"repetitions", Word::kValue},
                             {"kv-bits", Word::kValue},
                             {"adapter", Word::kValue},
                             {"data", Word::kValue},
                             {"trust", Word::kValue},
                             {"parent", Word::kValue}},
                            train_options());
  end_with_parent(arguments);
  BenchConfig config;
  const auto read = [&](const char* word, auto& value) {
    if (!arguments.text(word).empty()) read_word(word, arguments.text(word), value);
  };
  read("n-prompt", config.n_prompt);
  read("n-gen", config.n_gen);
  read("repetitions", config.repetitions);
  read("kv-bits", config.kv_bits);
  config.adapter = arguments.text("adapter");
  config.data = arguments.text("data");
  config.train = make_train_config(arguments.options());
  bench(trusted_bundle(arguments), config, emit);
  return 0;
}

int learn(const std::vector<std::string>& argv) {
  std::vector<std::string> names;
  for (const Option<LearnConfig>& option : learn_options()) names.push_back(option.name);
  const Arguments arguments(argv,
                            {{"state", Word::kValue},
                             {"data", Word::kValue},
                             {"forget", Word::kRepeated},
                             {"trust", Word::kValue},
                             {"parent", Word::kValue}},
                            names);
  const std::string state = arguments.required("state");
  stop_between_steps();
  end_with_parent(arguments);
  Model model(trusted_bundle(arguments));
  if (!arguments.all("forget").empty()) {
    if (!arguments.text("data").empty()) fail("--forget: cannot be combined with --data");
    forget(state, model, arguments.all("forget"), emit, stop);
  } else {
    const std::string data = arguments.required("data");
    if (!file_exists(data)) fail("--data ", data, ": not found");
    learn(state, model, data, make_learn_config(learner_options(state, arguments.options())), emit, stop);
  }
  return 0;
}

int versions(const std::vector<std::string>& argv) {
  const Arguments arguments(argv, {{"rollback", Word::kValue}}, std::vector<std::string>(), "STATE");
  const std::string& state = arguments.argument();
  if (!arguments.text("rollback").empty()) {
    int64_t version = 0;
    read_word("rollback", arguments.text("rollback"), version);
    roll_back(state, version);
  }
  emit(describe(read_learner_state(state)));
  return 0;
}

template <typename C>
void print_options(const char* title, const std::vector<Option<C>>& options) {
  std::printf("%s\n", title);
  for (const Option<C>& option : options) {
    if (option.help.empty()) continue;
    std::string name = option.name, values = option.metavar;
    std::replace(name.begin(), name.end(), '_', '-');
    for (const std::string& choice : option.choices) values += (values.empty() ? "" : "|") + choice;
    const std::string standard = option.get(C{});
    std::printf("  --%s %s\n      %s%s\n", name.c_str(), values.c_str(), option.help.c_str(),
                standard.empty() ? "" : (" (default: " + standard + ")").c_str());
  }
}

int options(const std::vector<std::string>&) {
  print_options("options of train and plan:", train_options());
  print_options("options of generate:", generate_options());
  print_options("options of learn, besides those of train:", own_learn_options());
  return 0;
}

int run(int argc, char** argv) {
  use_small_pages();
  static const std::map<std::string, int (*)(const std::vector<std::string>&)> commands = {
      {"tokens", tokens}, {"train", train}, {"plan", plan},         {"eval", eval},      {"generate", generate},
      {"bench", bench},   {"learn", learn}, {"versions", versions}, {"options", options}};
  const auto command = commands.find(argc > 1 ? argv[1] : "");
  if (command == commands.end()) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  return command->second({argv + 2, argv + argc});
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
