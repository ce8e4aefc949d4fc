#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/data/encode_row.h"
#include "runtime/learn/learner_state.h"
#include "runtime/model/model.h"
#include "runtime/text/bundle_text.h"
#include "runtime/train/run.h"

namespace mft {

/// The beginnings of `count` texts that the base model writes itself, for a night to train on beside its rows. The mean
/// loss of such texts is the KL divergence of the trained model from the base model, plus the base model's entropy: so
/// they keep the adapter from changing what the night's rows are not about (Self-Synthesized Rehearsal, Huang et al.
/// 2024, arXiv 2403.01244). They depend on nothing but the base model, the learner's seed and the night. At most 128
/// are written, and fewer if the writing takes until `until`; then they are repeated. An event after each.
std::vector<RowGroup> write_rehearsal(Model& model, const BundleText& text, const LearnerState& state, int64_t night,
                                      size_t count, const TrainConfig& config,
                                      std::chrono::steady_clock::time_point until, const EventSink& emit,
                                      const StopRequest& stop);

}  // namespace mft
