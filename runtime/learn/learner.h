#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/config/learn_config.h"
#include "runtime/learn/learner_state.h"
#include "runtime/model/model.h"
#include "runtime/train/run.h"

namespace mft {

/// Learning night after night. A learner's folder holds the rows that it keeps, the versions of its adapter and what
/// was decided about them. Each of these calls leaves it as it was or as it is to be, whenever the process ends, and
/// throws Error if another one works on it. They emit events (docs/reference/events.md).

/// The options of a night: what is given, and what the folder's first night set for all.
std::map<std::string, std::string> learner_options(const std::string& folder, std::map<std::string, std::string> given);

/// A night: takes the rows of `data` that are new, trains on them and on older ones from the current version on, and
/// adopts the result if `decide` finds it better. If `decide` cannot tell, the result is a candidate, from which the
/// next night goes on. `folder` is made if it is missing, and may be empty.
void learn(const std::string& folder, Model& model, const std::string& data, const LearnConfig& config,
           const EventSink& emit, const StopRequest& stop);

/// Forgets rows: removes them from the learner's rows and evaluations. If the current version was trained on any of
/// them, returns to the last one that was not, and repeats the nights since without these rows. A candidate that was
/// trained on them is made again in the same way. If that version or rows of those nights are not kept any more, one
/// night from the base model trains on all rows that are left. Throws Error if an id is not known.
void forget(const std::string& folder, Model& model, const std::vector<std::string>& ids, const EventSink& emit,
            const StopRequest& stop);

/// Makes an earlier version the current one; 0 is the base model. Throws Error if it is not kept.
void roll_back(const std::string& folder, int64_t version);

/// The state as a "done" event: versions, nights and the number of rows.
Event describe(const LearnerState& state);

}  // namespace mft
