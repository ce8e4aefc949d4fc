#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/config/train_config.h"
#include "runtime/train/run.h"

namespace mft {

struct BenchConfig {
  std::string adapter;            // folder; empty: the bundle's own
  std::string data;               // token file that steps train on; empty: no steps
  std::vector<int64_t> n_prompt;  // tokens of each prompt; empty: those of 32, 256 and 1024 that fit
  int64_t n_gen = 64;             // tokens of an answer
  int64_t repetitions = 5;
  int64_t kv_bits = 0;
  TrainConfig train;  // of the steps; answers use its `compute` and `threads`
};

/// Measures prompts, answers behind them and training steps. Reports the median of each as an event "bench".
void bench(const std::string& bundle, const BenchConfig& config, const std::function<void(const Event&)>& emit);

}  // namespace mft
