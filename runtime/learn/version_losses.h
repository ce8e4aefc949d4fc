#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/data/row_encoder.h"
#include "runtime/learn/learner_state.h"
#include "runtime/model/model.h"

namespace mft {

/// What a version loses on held-out rows and on general text, in float32.
struct VersionLosses {
  std::map<std::string, double> rows;  // id -> mean loss of its targets, or the loss of its pair or label
  double general = 0;                  // mean loss of the general text
};

/// Reads what was computed for the adapter in `folder` before; nothing if there is nothing, or it is damaged.
VersionLosses read_losses(const std::string& folder);
void write_losses(const std::string& folder, const VersionLosses& losses);

/// Computes what `known` lacks of `rows`, with the adapter in the folder `adapter` (empty: the base model's), and
/// leaves in it only these rows. A row without anything to learn has no loss. KTO's rows are compared without its
/// estimate of the KL divergence, so that a row's loss depends on no other. `work` is a folder for temporary files.
void compute_losses(Model& model, const BundleText& text, const TrainConfig& config, const std::string& adapter,
                    const std::vector<LoggedRow>& rows, const std::string& work, VersionLosses& known);

}  // namespace mft
