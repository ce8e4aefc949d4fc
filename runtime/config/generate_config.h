#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/option.h"

namespace mft {

/// Options of generation. Their names, texts and defaults reach every front end through `generate_options`.
struct GenerateConfig {
  int64_t max_tokens = 100;
  double temp = 0;    // 0: the likeliest token
  int64_t top_k = 0;  // 0: all
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  int64_t repetition_context_size = 20;  // tokens
  int64_t seed = 0;
  std::string chat_template_kwargs;
  std::vector<int64_t> stop_tokens;  // no option: they come from the tokenizer
};

const std::vector<Option<GenerateConfig>>& generate_options();

/// The configuration of the options given by name. Throws Error naming option and value.
GenerateConfig make_generate_config(const std::map<std::string, std::string>& given);

/// Throws Error naming the option where a value is out of range.
void check(const GenerateConfig& config);

}  // namespace mft
