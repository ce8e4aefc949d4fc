#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/bundle/token_file.h"
#include "runtime/model/model.h"
#include "runtime/train/comparison.h"
#include "runtime/train/loss.h"

namespace mft {

/// The loss of each token of a batch of t tokens into `losses` [t], 0 without a target: forward only, in two buffers
/// [t, hidden] by turns.
void token_losses(Model& model, const Batch& batch, float* x, float* y, std::vector<float>& losses);

/// The loss of all of `data` as configured, without its row weights. Two buffers [longest sequence, hidden]; the model
/// is prepared for that. `cache` of the reference's losses may be null. `on_sequence(index, its loss)` after each
/// sequence.
LossSum evaluate(Model& model, const TokenFile& data, const TrainConfig& config, ReferenceCache* cache, float* x,
                 float* y, const std::function<void(int64_t, const LossSum&)>& on_sequence = {});

/// The same of a token file of texts, with the adapter in a folder, empty for the bundle's own, and memory of its own.
/// Throws Error where there is nothing to evaluate, or the loss is not finite.
LossSum evaluate_file(Model& model, const std::string& adapter, const std::string& path,
                      const std::function<void(int64_t, const LossSum&)>& on_sequence = {});

}  // namespace mft
