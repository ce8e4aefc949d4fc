/// Options as texts, one "name value" a line, of a run that is planned and of generation.

#include <sstream>

#include "fuzz/cpp/fuzz.h"
#include "runtime/config/generate_config.h"
#include "runtime/plan/plan.h"

std::vector<std::string> seeds() {
  std::string train, generate;
  for (const auto& [name, text] : mft::options_of({})) train += name + ' ' + text + '\n';
  for (const auto& option : mft::generate_options()) generate += option.name + ' ' + option.get({}) + '\n';
  return {train, generate, "budget 64MiB\nbackward auto\nstored_units 1,2\nseq_len 8\nepochs 1.5\n"};
}

void run(const std::string& data) {
  static const mft_fuzz::TestBundle bundle;
  static const mft::Model model(bundle.folder());
  std::map<std::string, std::string> given;
  std::istringstream lines(data);
  for (std::string line; std::getline(lines, line);) {
    const size_t space = std::min(line.find(' '), line.size());
    given[line.substr(0, space)] = line.substr(std::min(space + 1, line.size()));
  }
  const bool generates = given.count("max_tokens") > 0;
  if (generates) mft::check(mft::make_generate_config(given));
  if (generates) return;
  mft::TrainConfig config = mft::make_train_config(given);
  mft::resolve(config, 10, 1e-3);
  mft::plan_training(model, config);
}
