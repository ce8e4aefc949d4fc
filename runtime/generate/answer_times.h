#pragma once

#include <cstdint>

#include "runtime/config/generate_config.h"
#include "runtime/generate/generator.h"

namespace mft {

struct AnswerTimes {
  double prompt;  // seconds
  double answer;
};

/// Reads a prompt of random tokens, and computes `answer_tokens` further random tokens one by one. Each `run` draws
/// others. Throws Error unless there are fewer than the bundle's max_seq_len
/// in total.
AnswerTimes time_answer(Generator& generator, int64_t prompt_tokens, int64_t answer_tokens,
                        const GenerateConfig& config, uint64_t run);

}  // namespace mft
