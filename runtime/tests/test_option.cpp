// Options: what their texts mean, that every mistake names option and value, and mft-run's command line.

#include "runtime/cli/arguments.h"
#include "runtime/config/auto_lr.h"
#include "runtime/config/generate_config.h"
#include "runtime/config/train_config.h"
#include "runtime/tests/test_support.h"

using namespace mft;
using namespace mft_test;

namespace {

TrainConfig made(const std::string& name, const std::string& text) { return make_train_config({{name, text}}); }

void test_numbers() {
  CHECK(made("steps", "7").steps == 7);
  CHECK(made("steps", "-3").steps == -3);  // reads; `check` refuses it
  for (const char* text : {"", "x", "5x", "1.5", "1e3", "99999999999999999999"}) {
    CHECK_ERROR(made("steps", text), std::string("steps ") + text + ": must be an integer");
  }
  const auto beta = [](const char* text) { return made("beta", text).beta; };
  CHECK(beta("-1.5e-3") == -1.5e-3 && beta("2") == 2 && beta("+.5") == 0.5);
  const auto lr = [](const char* text) { return made("lr", text).lr.value; };
  CHECK(lr("-1.5e-3") == -1.5e-3 && lr("2") == 2 && !lr("auto") && !TrainConfig().lr.value);
  for (const char* text : {"", "x", "1.5x", "nan", "inf", "1e999", "Auto"}) {
    CHECK_ERROR(beta(text), std::string("beta ") + text + ": must be a number");
    CHECK_ERROR(lr(text), std::string("lr ") + text + ": must be a number or auto");
  }
  CHECK(made("suffix_depths", "3,-1,12").schedule.suffix_depths == (std::vector<int64_t>{3, -1, 12}));
  CHECK(made("suffix_depths", "").schedule.suffix_depths.empty());
  for (const char* text : {"x", ",1", "1,,2", "1,2x", "1.5", "1;2"}) {
    CHECK_ERROR(made("suffix_depths", text),
                std::string("suffix_depths ") + text + ": must be integers separated by commas");
  }
}

void test_sizes() {
  const auto bytes = [](const char* text) { return made("budget", text).budget; };
  CHECK(bytes("") == 0);
  CHECK(bytes("512MB") == 512000000);
  CHECK(bytes("1.5GB") == 1500000000);
  CHECK(bytes("64KB") == 64000);
  CHECK(bytes("512MiB") == uint64_t{512} << 20);
  CHECK(bytes("1GiB") == uint64_t{1} << 30);
  CHECK(bytes("4096") == 4096);
  CHECK(bytes("4096B") == 4096);
  // None of these may become 0, which is no limit at all.
  for (const char* text : {"0", "0.5", "0MB", "-5MB", "MB", "5TB", "5mb", "5 MB", "nan", "inf", "infGB", "1e30"}) {
    CHECK_ERROR(bytes(text), std::string("budget ") + text + ": must be a size such as 512MB");
  }
}

void test_choices() {
  CHECK(made("schedule", "lcsb").schedule.rule == &kLcsb);
  CHECK(made("optimizer", "adamw8bit").optimizer == Optimizer::kAdamW8bit);
  CHECK_ERROR(made("schedule", "half"), "schedule half: must be one of full, lcsb, suffix");
  CHECK_ERROR(made("selection", ""), "selection : must be one of random, contiguous, strided");
  CHECK_ERROR(made("backward", "0"), "backward 0: must be one of auto, store, recompute");
  CHECK_ERROR(made("stepz", "1"), "unknown option stepz");
  // A value that is no member of its enum has no name to fall back on.
  TrainConfig config;
  config.optimizer = static_cast<Optimizer>(7);
  bool thrown = false;
  try {
    options_of(config);
  } catch (const std::exception&) {
    thrown = true;
  }
  CHECK(thrown);
}

/// Every option's text makes the same configuration again, at its default and changed.
void test_round_trip() {
  std::map<std::string, std::string> changed = {{"seq_len", "128"},
                                                {"batch_size", "2"},
                                                {"grad_accum", "3"},
                                                {"schedule", "suffix"},
                                                {"ratio", "0.3"},
                                                {"selection", "strided"},
                                                {"suffix_depths", "1,4"},
                                                {"backward", "store"},
                                                {"lora_train", "b"},
                                                {"optimizer", "adamw8bit"},
                                                {"max_grad_norm", "0.1"},
                                                {"loss", "dpo"},
                                                {"eval_every", "5"},
                                                {"budget", "123456789"},
                                                {"stored_units", "3,4"},
                                                {"mlp_tokens", "32"},
                                                {"threads", "2"},
                                                {"steps", "11"},
                                                {"epochs", "0"},
                                                {"lr", "3e-05"},
                                                {"lr_scheduler", "linear"},
                                                {"warmup_steps", "2"},
                                                {"warmup_ratio", "0.1"},
                                                {"weight_decay", "0.01"},
                                                {"unselected", "skip"},
                                                {"cache_prefix", "true"},
                                                {"beta", "0.2"},
                                                {"label_smoothing", "0.1"},
                                                {"simpo_gamma", "1.5"},
                                                {"sft_weight", "0.25"},
                                                {"proximal_mu", "0.5"},
                                                {"save_every", "7"},
                                                {"patience", "3"},
                                                {"period", "7"},
                                                {"seed", "42"},
                                                {"compute", "int8"},
                                                {"arithmetic", "x"},
                                                {"mask_prompt", "false"},
                                                {"assistant_turns", "last"},
                                                {"chat_template_kwargs", "{\"a\": 1}"},
                                                {"chat_template_date", "2026-01-31"},
                                                {"on_bad_row", "skip"},
                                                {"messages_key", "chat"},
                                                {"prompt_key", "q"},
                                                {"completion_key", "a"}};
  for (const auto& option : train_options()) CHECK(changed.count(option.name) == 1);
  CHECK(options_of(make_train_config(changed)) == changed);
  const auto standard = options_of(TrainConfig{});
  CHECK(options_of(make_train_config(standard)) == standard);
  CHECK(make_train_config(changed).schedule.seed == 42);
  for (const auto& option : generate_options()) {
    GenerateConfig config;
    option.set(config, option.get(config));
  }
}

void test_steps_and_epochs() {
  CHECK_ERROR(make_train_config({{"steps", "5"}, {"epochs", "1"}}), "epochs 1: set either steps or epochs");
  TrainConfig config = make_train_config({{"epochs", "1.5"}, {"batch_size", "2"}, {"warmup_ratio", "0.25"}});
  CHECK(options_of(config).count("steps") == 0);
  resolve(config, 11, 1e-3);
  CHECK(config.steps == 9 && config.warmup_steps == 3);  // 8.25 and 2.25, rounded up
  CHECK(config.epochs == 0 && config.warmup_ratio == 0);
  const std::pair<std::map<std::string, std::string>, int64_t> warmups[] = {
      {{{"steps", "100"}}, 5},
      {{{"steps", "49"}}, 4},
      {{{"steps", "9"}}, 0},
      {{{"epochs", "2"}}, 2},
      {{{"steps", "3"}, {"warmup_steps", "3"}}, 3},
      {{{"steps", "100"}, {"warmup_steps", "0"}}, 0},
      {{{"steps", "100"}, {"warmup_ratio", "0.5"}}, 50},
      {{{"steps", "100"}, {"warmup_ratio", "0.07"}}, 7},  // 7.000000000000001
      {{{"steps", "100"}, {"warmup_ratio", "0.5"}, {"warmup_steps", "0"}}, 50}};
  for (const auto& [given, steps] : warmups) {
    TrainConfig warmed = make_train_config(given);
    resolve(warmed, 10, 1e-3);
    CHECK(warmed.warmup_steps == steps);
  }
  TrainConfig both = make_train_config({{"warmup_ratio", "0.5"}, {"warmup_steps", "5"}});
  CHECK_ERROR(resolve(both, 1, 1e-3), "warmup_ratio 0.5: set either warmup_ratio or warmup_steps");
  config = make_train_config({{"epochs", "1.1"}});
  resolve(config, 10, 1e-3);
  CHECK(config.steps == 11);  // of 11.000000000000002
  config = make_train_config({{"epochs", "1e-9"}});
  resolve(config, 11, 1e-3);
  CHECK(config.steps == 1);
  for (const char* name : {"steps", "epochs"}) {
    TrainConfig most = make_train_config({{name, "1000000000"}});
    resolve(most, 1, 1e-3);
    CHECK(most.steps == 1000000000);
    TrainConfig more = make_train_config({{name, "1000000001"}});
    CHECK_ERROR(resolve(more, 1, 1e-3), " 1000000000");
  }
}

void test_auto_lr() {
  const auto rate = [](double base, std::map<std::string, std::string> given) {
    TrainConfig config = make_train_config(given);
    resolve(config, 10, base);
    return config.lr.value.value();
  };
  CHECK_NEAR(base_lr(32, 576), 1e-3, 1e-12);
  CHECK_NEAR(base_lr(4, 576), 4e-3, 1e-12);
  CHECK_NEAR(base_lr(32, 8 * 576), 2.5e-4, 1e-12);
  CHECK(base_lr(32, 64) == base_lr(32, 576));  // not measured in narrower models
  CHECK(rate(1e-3, {}) == 1e-3 && rate(2.5198e-3, {}) == 2.5e-3 && rate(9.96e-4, {}) == 1e-3 && rate(1e-8, {}) == 1e-8);
  CHECK(rate(1e-3, {{"schedule", "lcsb"}}) == 5e-4 && rate(1e-3, {{"schedule", "lisa"}}) == 4e-3);
  CHECK(rate(1e-3, {{"loss", "kto"}}) == 2e-4 && rate(1e-3, {{"loss", "dpo"}}) == 5e-5);
  CHECK(rate(1e-3, {{"lr", "3e-4"}, {"schedule", "lisa"}}) == 3e-4);
}

void test_arguments() {
  using Word = Arguments::Word;
  const std::map<std::string, Word> words = {
      {"data", Word::kValue}, {"resume", Word::kFlag}, {"variant", Word::kRepeated}};
  const auto parse = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "bundle");
    return Arguments(arguments, words, train_options());
  };
  const Arguments a = parse({"--grad-accum", "5", "--resume", "--data", "d", "--variant", "x", "--variant", "y"});
  CHECK(a.argument() == "bundle" && a.flag("resume") && a.required("data") == "d");
  CHECK(a.options() == (std::map<std::string, std::string>{{"grad_accum", "5"}}));
  CHECK(a.all("variant") == (std::vector<std::string>{"x", "y"}));
  CHECK(!parse({}).flag("resume") && parse({}).text("data").empty());
  CHECK(parse({"--data", "a", "--data", "b"}).text("data") == "b");
  CHECK_ERROR(parse({}).required("data"), "--data is missing");
  CHECK_ERROR(Arguments({"--resume"}, words, train_options()), "the argument BUNDLE is missing");
  CHECK_ERROR(parse({"second"}), "unexpected argument second");
  CHECK_ERROR(parse({"--stepz", "5"}), "unknown option --stepz");
  CHECK_ERROR(parse({"--"}), "unknown option --");
  CHECK_ERROR(parse({"--steps"}), "--steps requires a value");
}

}  // namespace

int main() {
  test_numbers();
  test_sizes();
  test_choices();
  test_round_trip();
  test_steps_and_epochs();
  test_auto_lr();
  test_arguments();
  return finish();
}
