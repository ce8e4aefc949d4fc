#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/data/row_encoder.h"
#include "runtime/data/token_writer.h"
#include "runtime/learn/learner_state.h"
#include "runtime/learn/losses_file.h"
#include "runtime/model/model.h"
#include "runtime/train/loss.h"
#include "runtime/train/run.h"

namespace mft {

/// Throws Stopped if there is a reason to.
void check_stop(const StopRequest& stop);

/// A kept row as tokens. Options may have changed since it came: a row that they do not suit any more is left out, or
/// an Error that names it, as `on_bad_row` says.
EncodedRows encode_kept(const LoggedRow& row, const RowEncoder& encoder, OnBadRow on_bad_row);

/// Calls `take(sequence, loss)` with what the prepared model loses on each sequence alone. `path` is a temporary file.
void evaluate_apart(Model& model, const Encoded& encoded, const TrainConfig& config, const std::string& path,
                    const StopRequest& stop, const std::function<void(int64_t, const LossSum&)>& take);

/// What losses of rows and of general text depend on besides the version, as text: options, and a hash of that text.
std::string loss_options(const TrainConfig& config);

/// Computes what `known` lacks of `rows`, with the adapter in the folder `adapter` (empty: the base model's), and
/// leaves in it only these rows. A row without anything to learn has no loss. KTO's rows are compared without its
/// estimate of the KL divergence, so that a row's loss depends on no other. `work` is a folder for temporary files.
/// Throws Stopped if it is asked to stop.
void compute_losses(Model& model, const BundleText& text, const TrainConfig& config, const std::string& adapter,
                    const std::vector<LoggedRow>& rows, const std::string& work, const StopRequest& stop,
                    VersionLosses& known);

}  // namespace mft
