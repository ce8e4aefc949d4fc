#include <algorithm>
#include <map>
#include <set>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/learn/learner.h"
#include "runtime/learn/losses_file.h"
#include "runtime/learn/night.h"

namespace mft {
namespace {

using Ids = std::set<std::string>;

void remove_rows(LearnerState& state, const Ids& ids) {
  for (const std::string& id : ids) {
    if (!state.knows(id)) fail(id, ": is not the id of a row of ", state.folder);
    state.gone[state.gone_hash(id)] = 0;
  }
  const auto end =
      std::remove_if(state.rows.begin(), state.rows.end(), [&](const LoggedRow& row) { return ids.count(row.id) > 0; });
  state.rows.erase(end, state.rows.end());
}

/// Whether a version or candidate, or one that it goes on from, was trained on any of these rows.
bool has_seen(const LearnerState& state, const Version* version, const Ids& ids) {
  for (; version != nullptr; version = state.find(version->parent)) {
    for (const std::string& id : version->trained) {
      if (ids.count(id) > 0) return true;
    }
  }
  return false;
}

/// Removes the versions that have seen the rows, and the rows from what was computed for the others.
void remove_traces(LearnerState& state, const Ids& ids) {
  std::vector<Version> kept;
  std::vector<std::string> folders = {kBaseFolder};
  for (const Version& version : state.versions) {
    if (has_seen(state, &version, ids)) continue;
    kept.push_back(version);
    if (!version.folder.empty()) folders.push_back(version.folder);
  }
  state.versions = std::move(kept);
  for (const std::string& folder : folders) {
    for (const std::string& id : ids) remove_loss(state.folder + "/" + folder, id);
  }
}

/// The nights after `night` that led to the current state. What was rolled back stays away: of the nights between two
/// rollbacks, those count that led to a version which the current one goes on from.
std::vector<Night> nights_to_repeat(const LearnerState& state, int64_t night) {
  std::map<int64_t, int64_t> last = {{state.rollbacks, INT64_MAX}};  // night that counts, by rollbacks before it
  for (const Version* v = state.find(state.current); v != nullptr; v = state.find(v->parent)) {
    for (const Night& n : state.nights) {
      if (n.number == v->night) last.insert({n.rollbacks, n.number});  // the newest version comes first
    }
  }
  std::vector<Night> nights;
  for (const Night& n : state.nights) {
    const auto found = last.find(n.rollbacks);
    if (n.number > night && found != last.end() && n.number <= found->second) nights.push_back(n);
  }
  return nights;
}

/// Removes nights, as if they had not been: the rows that they released are held out again.
void remove_nights(LearnerState& state, const std::vector<Night>& nights) {
  for (const Night& night : nights) {
    const auto end = std::remove_if(state.nights.begin(), state.nights.end(),
                                    [&](const Night& n) { return n.number == night.number; });
    state.nights.erase(end, state.nights.end());
    for (LoggedRow& row : state.rows) {
      if (row.released == night.number) row.released = 0;
    }
  }
}

/// Nights to repeat. `from_base`: one night, on all rows that are left.
struct Repeats {
  std::vector<Night> nights;
  bool from_base;
};

/// Repeats a night. One that fails twice cannot be without the rows, and counts as one that adopted nothing: the rows
/// have to go.
void repeat(LearnerState& state, const Night& night, bool from_base, Model& model, const BundleText& text,
            const EventSink& emit, const StopRequest& stop) {
  for (const bool again : {true, false}) {
    try {
      LearnConfig config = make_learn_config(night.options);
      config.minutes = 0;                   // another day's clock decides nothing
      if (!again) config.train.budget = 0;  // this process may hold more; without a budget, a run recomputes the most
      return run_night(state, night.number, model, text, config, from_base, emit, stop);
    } catch (const std::exception& error) {
      if (!stop.reason().empty()) throw;
      if (again) continue;  // the disk may have failed, or the memory limit may be lower now
      Verdict failed;
      failed.why = error.what();
      conclude(state, {night.number, night.options, 0, 0, state.rollbacks, {}, {}}, failed, emit);
      state.nights.back().verdict.why = "the night could not be repeated";  // an error may name a row
    }
  }
}

/// Removes the rows and what has seen them. Returns the nights to repeat, on the state as it was before them.
Repeats go_back(LearnerState& state, const Ids& ids, const EventSink& emit) {
  remove_rows(state, ids);
  const Version* last = state.find(state.current);
  const bool seen = has_seen(state, last, ids);
  const bool candidate_seen = state.candidate && has_seen(state, &*state.candidate, ids);
  while (has_seen(state, last, ids)) last = state.find(last->parent);
  const int64_t night = last == nullptr ? 0 : last->night;
  // A row of these nights that was dropped, or a version that is not kept, cannot be made again.
  const bool dropped =
      std::any_of(state.gone.begin(), state.gone.end(), [&](const auto& gone) { return gone.second > night; });
  const bool from_base = seen && (dropped || (last != nullptr && last->folder.empty()));
  const bool repeats = seen || (candidate_seen && !dropped);
  std::vector<Night> again = repeats ? nights_to_repeat(state, night) : std::vector<Night>();
  if (candidate_seen || from_base) state.candidate.reset();
  if (seen) state.current = from_base || last == nullptr ? 0 : last->number;
  if (from_base) {
    again = {state.nights.back()};
    // What limits one night does not limit what all nights taught.
    for (const char* limit : {"steps", "max_move"}) again[0].options.erase(limit);
    state.nights.clear();
    state.versions.clear();
    for (LoggedRow& row : state.rows) {
      row.night = again[0].number;
      row.released = 0;
    }
    for (auto& gone : state.gone) gone.second = 0;
  }
  emit({{"event", "forget"},
        {"rows", ids.size()},
        {"version", state.current},
        {"nights", again.size()},
        {"from_base", from_base}});
  remove_traces(state, ids);
  remove_nights(state, again);
  return {again, from_base};
}

int64_t keep_of(const Night& night) {
  try {
    return make_learn_config(night.options).keep;
  } catch (const Error&) {  // options of another release
    return LearnConfig().keep;
  }
}

}  // namespace

void forget(const std::string& folder, Model& model, const std::vector<std::string>& ids, const EventSink& emit,
            const StopRequest& stop) {
  const LockedFolder lock(folder);
  LearnerState state = read_learner_state(folder);
  check_bundle(state, model.bundle());
  remove_leftovers(state);
  commit(state, [&] {
    const auto [again, from_base] = go_back(state, Ids(ids.begin(), ids.end()), emit);
    const BundleText text(model.bundle());
    for (const Night& n : again) repeat(state, n, from_base, model, text, emit, stop);
    std::sort(state.nights.begin(), state.nights.end(),
              [](const Night& a, const Night& b) { return a.number < b.number; });
    if (!again.empty()) bound_versions(state, keep_of(again.back()));
  });
  const std::string left = remove_leftovers(state);
  if (!left.empty()) fail(left, ": cannot be removed, and may still hold forgotten rows");
  emit(describe(state));
}

}  // namespace mft
