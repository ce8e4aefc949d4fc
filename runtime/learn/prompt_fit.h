#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/row_encoder.h"
#include "runtime/learn/learner_state.h"
#include "runtime/model/model.h"
#include "runtime/train/run.h"

namespace mft {

/// Counts the answers that are likelier after their own prompt than after the prompt of another of these rows, which
/// must be ones that the adapter in the folder `adapter` (empty: the base model's) was not trained on. The first 40
/// rows with a prompt are compared; one that is too long with the other prompt does not count. `work` is a folder for
/// temporary files.
PromptFit prompt_fit(Model& model, const BundleText& text, const TrainConfig& config, const std::string& adapter,
                     const std::vector<LoggedRow>& rows, const std::string& work, const StopRequest& stop);

/// Whether a night's answers seem to belong to other prompts: fewer fit than in earlier nights, and no more than half,
/// but for what chance alone makes in 1 % of cases.
bool is_mixed_up(const PromptFit& night, const PromptFit& earlier);

}  // namespace mft
