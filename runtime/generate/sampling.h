#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/random.h"
#include "runtime/config/generate_config.h"

namespace mft {

/// Samples the next token from `logits` [n], which are modified. `recent` has the tokens before it, the latest last.
/// The order is that of Hugging Face's processors: repetition penalty, temperature, top-k, top-p, min-p.
int64_t sample(float* logits, size_t n, const std::vector<int64_t>& recent, const GenerateConfig& config,
               Random& random);

}  // namespace mft
