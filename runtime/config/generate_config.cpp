#include "runtime/config/generate_config.h"

#include <cmath>

namespace mft {
namespace {

using C = GenerateConfig;

template <typename Field>
Option<C> run_option(const char* name, Field field, const char* help) {
  return option<C>(name, field, OptionGroup::kRun, true, help);
}

std::vector<Option<C>> make_options() {
  return {
      run_option(
          "max_tokens", [](C& c) -> auto& { return c.max_tokens; }, "maximum length of the answer, in tokens"),
      run_option(
          "temp", [](C& c) -> auto& { return c.temp; }, "sampling temperature; 0: greedy"),
      run_option(
          "top_k", [](C& c) -> auto& { return c.top_k; }, "sample from the k most likely tokens; 0: all"),
      run_option(
          "top_p", [](C& c) -> auto& { return c.top_p; },
          "sample from the most likely tokens whose probabilities sum to p"),
      run_option(
          "min_p", [](C& c) -> auto& { return c.min_p; },
          "drop tokens with less than this fraction of the highest probability"),
      run_option(
          "repetition_penalty", [](C& c) -> auto& { return c.repetition_penalty; },
          "penalty for the last tokens of prompt and answer; 1: none"),
      run_option(
          "repetition_context_size", [](C& c) -> auto& { return c.repetition_context_size; },
          "number of last tokens for --repetition-penalty"),
      run_option(
          "seed", [](C& c) -> auto& { return c.seed; }, "random seed for sampling"),
      run_option(
          "compute", [](C& c) -> auto& { return c.compute; },
          "arithmetic of linear layers; auto: int8, whose answers may differ from those of float32 in a word"),
      run_option(
          "kv_bits", [](C& c) -> auto& { return c.kv_bits; },
          "bits of each number in the key-value cache: 32, 16 or 8; 0: 16, or 32 with --compute float32"),
      run_option(
          "chat_template_kwargs", [](C& c) -> auto& { return c.chat_template_kwargs; },
          "chat template variables as JSON, such as {\"enable_thinking\": false}"),
  };
}

}  // namespace

const std::vector<Option<C>>& generate_options() {
  static const std::vector<Option<C>> options = make_options();
  return options;
}

C make_generate_config(const std::map<std::string, std::string>& given) {
  C config;
  for (const auto& [name, text] : given) set_option(generate_options(), config, name, text);
  check(config);
  return config;
}

void check(const C& c) {
  const auto not_negative = [](const char* name, auto value) {
    if (!(value >= 0)) fail(name, " ", value, ": must not be negative");
  };
  if (c.max_tokens < 1) fail("max_tokens ", c.max_tokens, ": must be at least 1");
  not_negative("temp", c.temp);
  not_negative("top_k", c.top_k);
  not_negative("repetition_context_size", c.repetition_context_size);
  not_negative("seed", c.seed);
  if (c.kv_bits != 0 && c.kv_bits != 8 && c.kv_bits != 16 && c.kv_bits != 32) {
    fail("kv_bits ", c.kv_bits, ": must be 32, 16, 8 or 0");
  }
  if (!(c.top_p > 0 && c.top_p <= 1)) fail("top_p ", c.top_p, ": must be above 0 and at most 1");
  if (!(c.min_p >= 0 && c.min_p <= 1)) fail("min_p ", c.min_p, ": must be from 0 to 1");
  if (!(c.repetition_penalty > 0)) fail("repetition_penalty ", c.repetition_penalty, ": must be positive");
  // Sampling computes with these in float32, where smaller ones are 0, or as good as, and larger ones infinite.
  const auto in_float32 = [](double value) { return std::isnormal(static_cast<float>(value)); };
  if (c.temp != 0 && !in_float32(c.temp)) fail("temp ", c.temp, ": must be 0 or from 1.2e-38 to 3.4e+38");
  if (!in_float32(c.repetition_penalty)) {
    fail("repetition_penalty ", c.repetition_penalty, ": must be from 1.2e-38 to 3.4e+38");
  }
}

}  // namespace mft
