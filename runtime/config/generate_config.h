#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/option.h"
#include "runtime/config/compute_choice.h"

namespace mft {

/// Options of generation. All front ends get their names, texts and defaults from `generate_options`.
struct GenerateConfig {
  int64_t max_tokens = 100;
  double temp = 0;    // 0: greedy
  int64_t top_k = 0;  // 0: all
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  int64_t repetition_context_size = 20;  // tokens
  int64_t seed = 0;
  ComputeChoice compute = ComputeChoice::kAuto;  // int8
  int64_t kv_bits = 0;                           // of cached keys and values; 0: 16, and 32 if `compute` is float32
  std::string chat_template_kwargs;
  std::vector<int64_t> stop_tokens;  // not an option: set from the tokenizer
};

const std::vector<Option<GenerateConfig>>& generate_options();

/// Returns the configuration for options given by name. Throws Error, with the option and the value.
GenerateConfig make_generate_config(const std::map<std::string, std::string>& given);

/// Throws Error, with the option, if a value is out of range.
void check(const GenerateConfig& config);

}  // namespace mft
