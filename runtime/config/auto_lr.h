#pragma once

#include <cstdint>

#include "runtime/bundle/bundle.h"
#include "runtime/config/train_config.h"

namespace mft {

/// The peak learning rate of schedule full and loss sft, for LoRA of this alpha in a model of this width:
/// 1e-3 (32 / alpha * 576 / width)^(2/3), and that of width 576 in narrower models. Measured in docs/quality.md.
double base_lr(double alpha, int64_t hidden_size);

/// That of a bundle, times the factor of its model family. rsLoRA scales by alpha / sqrt(rank) and LoRA by
/// alpha / rank, so its alpha counts sqrt(rank) times.
double base_lr(const Bundle& bundle);

/// The peak learning rate of `--lr auto`, to two digits: the base rate times the factors of schedule and loss.
double auto_lr(const TrainConfig& config, double base);

}  // namespace mft
