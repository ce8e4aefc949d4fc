#pragma once

#include <string>

#include "runtime/config/learn_config.h"
#include "runtime/data/row_encoder.h"
#include "runtime/learn/learner_state.h"
#include "runtime/model/model.h"
#include "runtime/train/run.h"

namespace mft {

/// Trains on the rows that night `number` brought and on older ones, from the current version or its candidate on, and
/// decides. The result becomes the state's current version or its candidate, or is dropped. The state is changed in
/// memory, and its folder only where state.json names nothing yet. `are_checked`: earlier nights accepted all rows, so
/// they are not left out as mixed up. Throws Error if it is asked to stop.
void run_night(LearnerState& state, int64_t number, Model& model, const BundleText& text, const LearnConfig& config,
               bool are_checked, const EventSink& emit, const StopRequest& stop);

/// Ends a night with a verdict: emits it, and adds the night to the state.
void conclude(LearnerState& state, Night night, const Verdict& verdict, const EventSink& emit);

}  // namespace mft
