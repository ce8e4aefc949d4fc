#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/option.h"
#include "runtime/config/train_config.h"

namespace mft {

/// Options of a night of `learn`, besides those of its training run.
struct LearnConfig {
  LearnConfig();

  TrainConfig train;
  double held_out = 0.25;                  // set by the first night; of 40 rows, fewer than 5 once in 60 nights
  double replay = 1.25;                    // older rows per new row
  double rehearsal = 0;                    // texts of the base model per row; losses of feedback cannot learn from them
  uint64_t log_bytes = uint64_t{4} << 20;  // of rows that are kept
  int64_t keep = 3;                        // versions
  double general_bound = 0.005;            // by which the perplexity of general text may rise over the base model's
  double max_move = 0;                     // of the adapter in a night, as a share of its norm; 0: no limit
  double minutes = 0;                      // of training; 0: no limit
};

/// The options of `learn` besides those of a training run.
const std::vector<Option<LearnConfig>>& own_learn_options();

/// All options of `learn`: its own, and those of a training run, some with other defaults.
const std::vector<Option<LearnConfig>>& learn_options();

/// Returns the configuration for options given by name. Throws Error, with the option and the value.
LearnConfig make_learn_config(const std::map<std::string, std::string>& given);

/// Returns {name: text} of all options. `make_learn_config` converts it back to the same configuration.
std::map<std::string, std::string> options_of(const LearnConfig& config);

}  // namespace mft
