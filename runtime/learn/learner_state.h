#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/bundle/bundle.h"
#include "runtime/learn/losses_file.h"

namespace mft {

/// Of version 0, the base model: it has no adapter there, only what was computed for it.
inline constexpr const char* kBaseFolder = "versions/0";

/// A row that the learner keeps. Whether it begins as a held-out row, and where it is drawn, depends on nothing but its
/// id and the learner's seed, so that the absence of another row changes nothing.
struct LoggedRow {
  std::string id;
  int64_t night;         // that brought it
  std::string json;      // the row as it was given
  int64_t released = 0;  // night from which on it is trained on, although it began as a held-out row; 0: none yet
};

/// How a version did against the one before it.
struct Verdict {
  bool adopted = false;
  bool undecided = false;  // not adopted, as chance may have made the gain or the loss, or held-out rows are too few
  std::string why;         // a sentence
  int64_t rows = 0;        // held out
  double gain = 0;         // their loss per token before, less after
  double chance = 1;       // how likely chance alone makes that gain
  double loss = 0;         // per token after
  double general = 0;      // perplexity of general text, relative to the base model's
  double moved = 0;        // norm of the adapter's change, as a share of that of the adapter before
  double share = 1;        // of the distance to the base model that general text bore
};

/// A verdict's keys, as state.json and events have them.
nlohmann::ordered_json to_json(const Verdict& verdict);

/// How many of a night's answers fit their own prompt better than that of another row.
struct PromptFit {
  int64_t better = 0, of = 0;
};

/// A night: what it did. Number 1 is the first.
struct Night {
  int64_t number;
  std::map<std::string, std::string> options;  // of learn, as text
  int64_t added = 0, replayed = 0;             // rows
  int64_t rollbacks = 0;  // before it: nights between the same two rollbacks went on from each other
  Verdict verdict;
  PromptFit fit;
};

/// A version of the adapter, in `folder` under the state's folder; empty if it is not kept any more.
struct Version {
  int64_t number;  // 0 is the base model
  int64_t parent;  // the version that it went on from
  int64_t night;   // that made it
  std::string folder;
  std::vector<std::string> trained;  // ids of the rows that it was trained on, and its parents were not
};

/// What a learner's folder holds. `state.json` names all other files that count, and is replaced as a whole: whenever a
/// process ends, the folder holds the state before or after a call. Other files there are leftovers.
struct LearnerState {
  std::string folder;
  std::string weights, adapter;  // what identify the bundle and the form of its adapter
  std::string loss;              // name; all nights have the same
  int64_t seed = 0;
  double held_out = 0;
  std::string salt;     // of the hashes of rows that are gone
  int64_t current = 0;  // version
  int64_t next_version = 1, next_file = 1;
  int64_t rollbacks = 0;
  std::string rows_file;  // below `folder`
  std::vector<Night> nights;
  std::vector<Version> versions;  // all adopted ones, by number
  /// What nights after the current version made that were not enough to decide. The next night goes on from it.
  std::optional<Version> candidate;
  std::vector<LoggedRow> rows;  // by night and in the order of their arrival
  /// Hashes of the ids of rows that were dropped or forgotten, which are not new if they are seen again, and the last
  /// night that took them as new or held out; 0 if they were forgotten.
  std::map<std::string, int64_t> gone;
  /// Losses that were computed for versions, by their folder. Written with the state, not a part of it.
  std::map<std::string, VersionLosses> computed;

  const Version* find(int64_t version) const;
  /// The folder of the current version's adapter; empty for the base model.
  std::string adapter_folder() const;
  /// What the next night goes on from: the candidate, or the current version; null: the base model.
  const Version* start() const { return candidate ? &*candidate : find(current); }
  /// The current version's folder below `folder`.
  std::string current_folder() const { return current == 0 ? kBaseFolder : find(current)->folder; }
  /// Whether a row is held out in a night: no version up to then was trained on it.
  bool is_held_out(const LoggedRow& row, int64_t night) const;
  /// A number in [0, 1) that depends on the seed, the purpose, the night and the id.
  double draw(const std::string& purpose, int64_t night, const std::string& id) const;
  std::string gone_hash(const std::string& id) const;
  bool knows(const std::string& id) const;
};

/// Whether `folder` is a learner's.
bool is_learner_state(const std::string& folder);

/// A state for an empty folder. Throws Error if it is not empty.
LearnerState new_learner_state(const std::string& folder, const Bundle& bundle);

/// Reads a state. Throws Error, with the file and the value, if it is damaged.
LearnerState read_learner_state(const std::string& folder);

/// Throws Error if the bundle is not the one that the state was made with.
void check_bundle(const LearnerState& state, const Bundle& bundle);

/// Gives up the folders of all but the last `keep` versions and the current one.
void bound_versions(LearnerState& state, int64_t keep);

/// Writes the rows, then `state.json`, and removes the files and version folders that it does not name.
void write_learner_state(LearnerState& state);

/// Removes what an interrupted call left behind. Returns a file or folder that could not be removed, or nothing.
std::string remove_leftovers(const LearnerState& state) noexcept;

/// Whether `state` is what its folder holds.
bool is_written(const LearnerState& state) noexcept;

/// Changes a state and writes it. If that fails, what the change left in the folder is removed.
template <typename Change>
void commit(LearnerState& state, const Change& change) {
  const LearnerState before = state;
  try {
    change();
    write_learner_state(state);
  } catch (...) {
    if (is_written(before)) remove_leftovers(before);  // an error may also come after the state was written
    throw;
  }
}

}  // namespace mft
