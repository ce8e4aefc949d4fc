#include "runtime/config/learn_config.h"

#include <cmath>

#include "runtime/base/error.h"

namespace mft {
namespace {

using C = LearnConfig;

// The default of a night's passes over its rows, new and replayed. From few trials: with two passes, the loss of
// held-out rows rose from the sixth night of 40 dialogues on.
constexpr double kEpochs = 1;
constexpr double kMostRehearsal = 100;  // texts per row, most of them copies

/// Options of a run that a night sets itself.
constexpr const char* kNotOffered[] = {"save_every", "stored_units", "mlp_tokens", "arithmetic"};

bool is_offered(const std::string& name) {
  for (const char* other : kNotOffered) {
    if (name == other) return false;
  }
  return true;
}

Option<C> option_of_training(const Option<TrainConfig>& of) {
  Option<C> made{of.name, of.type, of.choices, of.metavar, of.help, of.group, of.decides_result, {}, {}};
  made.set = [&of](C& c, const std::string& text) { of.set(c.train, text); };
  made.get = [&of](const C& c) { return of.get(c.train); };
  return made;
}

std::vector<Option<C>> make_own_options() {
  constexpr OptionGroup kRun = OptionGroup::kRun;
  return {
      option<C>(
          "held_out", [](C& c) -> auto& { return c.held_out; }, kRun, true,
          "share of each night's rows that are held out, for the decision whether to adopt a version; the newest 40 of "
          "these are not trained on; set by the first night"),
      option<C>(
          "replay", [](C& c) -> auto& { return c.replay; }, kRun, true,
          "rows of earlier nights that are trained on again, per new row"),
      option<C>(
          "rehearsal", [](C& c) -> auto& { return c.rehearsal; }, kRun, true,
          "number of texts per row that the base model writes and the night trains on, to forget less; sft only"),
      option<C>(
          "log_bytes", [](C& c) -> auto& { return c.log_bytes; }, kRun, true,
          "size of the rows that are kept for replay and evaluation; above it, rows drawn at random are dropped"),
      option<C>(
          "keep", [](C& c) -> auto& { return c.keep; }, kRun, false, "number of versions that are kept"),
      option<C>(
          "general_bound", [](C& c) -> auto& { return c.general_bound; }, kRun, true,
          "by how much a version may raise the perplexity of general text over the base model's; 0.005 is 0.5 %"),
      option<C>(
          "max_move", [](C& c) -> auto& { return c.max_move; }, kRun, true,
          "maximum of |adapter after - before| / |adapter before| of a night's training; larger changes are scaled "
          "down; 0: no limit"),
      option<C>(
          "minutes", [](C& c) -> auto& { return c.minutes; }, kRun, false,
          "limit of a night's training time; 0: no limit"),
  };
}

std::vector<Option<C>> make_options() {
  std::vector<Option<C>> options = own_learn_options();
  for (const Option<TrainConfig>& of : train_options()) {
    if (is_offered(of.name)) options.push_back(option_of_training(of));
  }
  return options;
}

void check_values(const C& c) {
  const auto check = [](const char* name, double value, bool right, const char* valid) {
    if (!right) fail(name, ' ', value, ": must be ", valid);
  };
  check("held_out", c.held_out, c.held_out > 0 && c.held_out < 1, "above 0 and below 1");
  check("replay", c.replay, c.replay >= 0 && std::isfinite(c.replay), "a number that is not negative");
  check("rehearsal", c.rehearsal, c.rehearsal >= 0 && c.rehearsal <= kMostRehearsal, "from 0 to 100");
  check("rehearsal", c.rehearsal, c.rehearsal == 0 || c.train.loss == Loss::kSft, "0 unless loss is sft");
  check("keep", static_cast<double>(c.keep), c.keep >= 1, "at least 1");
  check("general_bound", c.general_bound, c.general_bound >= 0 && std::isfinite(c.general_bound),
        "a number that is not negative");
  check("max_move", c.max_move, c.max_move >= 0 && std::isfinite(c.max_move), "a number that is not negative");
  check("minutes", c.minutes, c.minutes >= 0 && std::isfinite(c.minutes), "a number that is not negative");
  if (c.train.seed < 0) fail("seed ", c.train.seed, ": must not be negative");
}

}  // namespace

const std::vector<Option<C>>& own_learn_options() {
  static const std::vector<Option<C>> options = make_own_options();
  return options;
}

const std::vector<Option<C>>& learn_options() {
  static const std::vector<Option<C>> options = make_options();
  return options;
}

LearnConfig::LearnConfig() { train.epochs = kEpochs; }

C make_learn_config(const std::map<std::string, std::string>& given) {
  C config;
  if (given.count("steps")) config.train.epochs = 0;
  for (const auto& [name, text] : given) set_option(learn_options(), config, name, text);
  if (config.train.epochs != 0 && given.count("steps")) {
    fail("epochs ", config.train.epochs, ": set either steps or epochs");
  }
  check_values(config);
  return config;
}

std::map<std::string, std::string> options_of(const C& config) {
  std::map<std::string, std::string> texts;
  for (const Option<C>& option : learn_options()) texts[option.name] = option.get(config);
  texts.erase(config.train.epochs > 0 ? "steps" : "epochs");
  return texts;
}

}  // namespace mft
