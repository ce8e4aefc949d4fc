#pragma once

#include <cstdint>

#include "runtime/config/train_config.h"

namespace mft {

/// The learning rate of a step, which counts from 0: a linear warm-up over `warmup_steps`, then the scheduler's decay
/// over the rest of the steps. `config` is resolved.
double learning_rate(const TrainConfig& config, int64_t step);

}  // namespace mft
