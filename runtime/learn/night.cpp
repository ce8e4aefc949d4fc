#include "runtime/learn/night.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

#include "runtime/base/buffer.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/data/token_writer.h"
#include "runtime/learn/prompt_fit.h"
#include "runtime/learn/rehearsal.h"
#include "runtime/learn/verdict.h"
#include "runtime/learn/version_losses.h"
#include "runtime/platform/process_memory.h"

namespace mft {
namespace {

using Clock = std::chrono::steady_clock;

// How far a night goes towards where its training ended. All the way is too far towards its own rows: with half of it,
// the loss of rows of all nights was 3 % lower after 14 nights, and WikiText-2's perplexity 12 % lower. This is the
// Lookahead optimizer, with a night as its inner loop (Zhang et al. 2019, arXiv 1907.08610).
constexpr double kWay = 0.5;

// What makes an adapter smaller that general text does not bear, in turn: to this share of its distance to the base
// model, or of that of the night's change. A pull to the base model by more than a tenth undoes what earlier nights
// taught, so the night is shortened first.
struct Pull {
  bool to_base;
  double share;
};
constexpr Pull kPulls[] = {{true, 0.95}, {true, 0.9},  {false, 0.5}, {false, 0.25}, {true, 0.8},
                           {true, 0.65}, {true, 0.45}, {true, 0.25}, {true, 0.15},  {true, 0.08}};

// Rows that stay held out. With more of them, smaller gains can be told from chance; but what they would have taught is
// missing: where a quarter of all rows was held out for ever, the loss after 14 nights was 2.5 % higher.
constexpr size_t kMostHeldOut = 40;

/// The rows of a night.
struct NightRows {
  std::vector<LoggedRow> fresh;  // trained on for the first time
  std::vector<LoggedRow> replayed;
  std::vector<LoggedRow> judged;   // held out, for the decision
  std::vector<LoggedRow> watched;  // held out, for early stopping
};

/// Orders rows by their draws for a purpose of this night.
void sort_by_draw(const LearnerState& state, const char* purpose, int64_t night, std::vector<LoggedRow>& rows) {
  std::sort(rows.begin(), rows.end(), [&](const LoggedRow& a, const LoggedRow& b) {
    return state.draw(purpose, night, a.id) < state.draw(purpose, night, b.id);
  });
}

/// Releases the oldest held-out rows into training, from this night on.
void release(LearnerState& state, int64_t night) {
  std::vector<LoggedRow*> held_out;
  for (LoggedRow& row : state.rows) {
    if (row.night <= night && state.is_held_out(row, night)) held_out.push_back(&row);
  }
  std::sort(held_out.begin(), held_out.end(), [&](const LoggedRow* a, const LoggedRow* b) {
    return std::pair(b->night, state.draw("released", 0, a->id)) <
           std::pair(a->night, state.draw("released", 0, b->id));
  });
  for (size_t i = kMostHeldOut; i < held_out.size(); ++i) held_out[i]->released = night;
}

NightRows rows_of(const LearnerState& state, int64_t night, const LearnConfig& config) {
  NightRows rows;
  std::vector<LoggedRow> older;
  for (const LoggedRow& row : state.rows) {
    if (row.night > night) continue;
    if (state.is_held_out(row, night)) {
      // The rows that choose when to stop would praise what they chose.
      const bool watches = config.train.eval_every > 0 && state.draw("watched", 0, row.id) < 1.0 / 3;
      (watches ? rows.watched : rows.judged).push_back(row);
    } else {
      (row.night == night || row.released == night ? rows.fresh : older).push_back(row);
    }
  }
  sort_by_draw(state, "replay", night, older);
  const double wanted = std::round(config.replay * static_cast<double>(rows.fresh.size()));
  older.resize(static_cast<size_t>(std::min(wanted, static_cast<double>(older.size()))));
  rows.replayed = std::move(older);
  return rows;
}

Encoded encode(const std::vector<LoggedRow>& rows, const RowEncoder& encoder, const TrainConfig& config) {
  Encoded encoded;
  for (const LoggedRow& row : rows) {
    EncodedRows found = encode_kept(row, encoder, config.data.on_bad_row);
    encoded.add(std::move(found.groups), found.weight);
  }
  return encoded;
}

/// Passes a run's events on. Its end is not the night's.
EventSink of_training(const EventSink& emit) {
  return [emit](Event event) {
    if (event.at("event") == "done") event["event"] = "trained";
    emit(event);
  };
}

/// When a limit of minutes ends that begins now; 0: never.
Clock::time_point end_of(double minutes) {
  constexpr double kMostMinutes = 1e6;  // about two years; a clock's numbers overflow after some centuries
  if (minutes == 0 || minutes > kMostMinutes) return Clock::time_point::max();
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(60 * minutes));
}

/// Trains into the folder `paths.out`. Sets what an MLP computes at once, for evaluations to need no more memory.
void train(Model& model, TrainConfig& config, const RunPaths& paths, Clock::time_point end, const EventSink& emit,
           const StopRequest& stop) {
  StopRequest late;
  int64_t mlp_tokens = 0;
  Run run(model, config, paths, [&](const Event& event) {
    if (event.at("event") == "plan") mlp_tokens = event.at("mlp_tokens");
    emit(event);
  });
  try {
    while (run.step(late)) {
      check_stop(stop);
      if (Clock::now() >= end) late.time_is_up();
    }
  } catch (const Stopped&) {  // its adapter is saved
    check_stop(stop);
    if (late.reason().empty()) {
      throw Stopped("the memory limit was lowered below what the training needs; the learner is as it was before");
    }
  }
  check_stop(stop);
  config.mlp_tokens = mlp_tokens;
}

/// Reads the adapter in a folder into the model's own parameters, which each evaluation reads anew, and the one to
/// compare it with into a buffer: with a third one, a night might need more memory than its training.
Buffer load_both(Model& model, const std::string& adapter, const std::string& other) {
  model.load_adapter_into(adapter, model.parameters());
  Buffer loaded(model.layout().size * sizeof(float));
  model.load_adapter_into(other, loaded.floats());
  return loaded;
}

/// Leaves only this share of the distance from one adapter to the one in the folder `adapter`.
void pull(Model& model, const std::string& to, const std::string& adapter, double share) {
  const Buffer origin = load_both(model, adapter, to);
  float* const pulled = model.parameters();
  for (size_t i = 0; i < model.layout().size; ++i) {
    pulled[i] = origin.floats()[i] + static_cast<float>(share) * (pulled[i] - origin.floats()[i]);
  }
  save_adapter(adapter, model.bundle(), model.layout(), pulled);
}

/// The norm of a change of the adapter, as a share of that of the adapter before.
double length_of_move(Model& model, const std::string& before, const std::string& after) {
  const Buffer from = load_both(model, after, before);
  double moved = 0, length = 0;
  for (size_t i = 0; i < model.layout().size; ++i) {
    moved += std::pow(model.parameters()[i] - from.floats()[i], 2);
    length += std::pow(from.floats()[i], 2);
  }
  return std::sqrt(moved / length);
}

/// Scales the change of a night down to `max_move`.
void bound_move(Model& model, double max_move, const std::string& before, const std::string& adapter) {
  if (max_move == 0) return;
  const double moved = length_of_move(model, before, adapter);
  if (moved > max_move) pull(model, before, adapter, max_move / moved);
}

/// Pulls the adapter to the base model, and to the adapter in the folder `before` if the night did not begin with the
/// base model (empty), until general text fits its bound. How its loss depends on the distance is not known beforehand:
/// near the base model, it often falls. The held-out rows have no part in that, so that they can judge the result.
/// Returns the share of the distance to the base model that its pulls left.
double bound_general(Model& model, const BundleText& text, const LearnConfig& config, const std::string& before,
                     const std::string& adapter, const std::string& work, const StopRequest& stop,
                     const VersionLosses& base, VersionLosses& after) {
  const auto fits = [&] {
    after = VersionLosses();
    compute_losses(model, text, config.train, adapter, {}, work, stop, after);
    return !(std::exp(after.general - base.general) > 1 + config.general_bound);  // not a number: no pull helps
  };
  double of_base = 1, of_night = 1;
  if (fits()) return of_base;
  for (const Pull& next : kPulls) {
    if (!next.to_base && before.empty()) continue;
    double& left = next.to_base ? of_base : of_night;
    pull(model, next.to_base ? "" : before, adapter, next.share / left);
    left = next.share;
    if (fits()) break;
  }
  return of_base;
}

/// Moves what a version keeps of a run's folder to `folder`: the best adapter, and the moments of the last step.
void keep_version(const std::string& run, const std::string& folder) {
  const std::string best = run + "/best";
  const std::string adapter = std::filesystem::exists(best) ? best : run;
  make_folder(folder);
  for (const char* name : {"/adapter_config.json", "/adapter_model.safetensors"}) {
    std::filesystem::rename(adapter + name, folder + name);
  }
  std::filesystem::rename(run + kMomentsFile, folder + kMomentsFile);
  sync_folder_of(folder + kMomentsFile);
}

/// Makes what a night made the current version or a candidate, or drops it with the candidate that it went on from.
void keep_result(LearnerState& state, int64_t night, const Verdict& verdict, const std::string& run,
                 const std::vector<LoggedRow>& learned) {
  if (!verdict.adopted && !verdict.undecided) {
    state.candidate.reset();
    return;
  }
  std::set<std::string> trained;
  for (const LoggedRow& row : learned) trained.insert(row.id);
  if (state.candidate) trained.insert(state.candidate->trained.begin(), state.candidate->trained.end());
  // What a version names that this one goes on from is not named again, so that state.json stays small.
  for (const Version* v = state.find(state.current); v != nullptr; v = state.find(v->parent)) {
    for (const std::string& id : v->trained) trained.erase(id);
  }
  Version made{state.next_version, state.current, night, "", {trained.begin(), trained.end()}};
  made.folder = verdict.adopted ? "versions/" + std::to_string(made.number)
                                : "versions/candidate-" + std::to_string(state.next_file);
  keep_version(run, state.folder + "/" + made.folder);
  state.candidate.reset();
  if (verdict.adopted) {
    ++state.next_version;
    state.current = made.number;
    state.versions.push_back(std::move(made));
  } else {
    ++state.next_file;  // only now, as a night that failed is tried again
    state.candidate = std::move(made);
  }
}

/// What is known of the losses of a version in this folder below the state's: computed in this call, or before.
VersionLosses known_losses(const LearnerState& state, const std::string& folder, const std::string& options) {
  const auto found = state.computed.find(folder);
  if (found != state.computed.end() && found->second.options == options) return found->second;
  return read_losses(state.folder + "/" + folder, options);
}

/// Of all rows that this night brought, in the order of a draw.
std::vector<LoggedRow> new_rows(const LearnerState& state, int64_t night) {
  std::vector<LoggedRow> rows;
  for (const LoggedRow& row : state.rows) {
    if (row.night == night) rows.push_back(row);
  }
  sort_by_draw(state, "prompt", night, rows);
  return rows;
}

/// Of the nights before `number`. Where it is repeated, there may be later ones, which were rolled back.
PromptFit earlier_fit(const LearnerState& state, int64_t number) {
  PromptFit sum;
  for (const Night& night : state.nights) {
    if (night.number >= number) continue;
    sum.better += night.fit.better;
    sum.of += night.fit.of;
  }
  return sum;
}

/// Takes back a night's rows, and what they released.
void set_aside(LearnerState& state, int64_t night) {
  std::vector<LoggedRow> kept;
  for (LoggedRow& row : state.rows) {
    if (row.released == night) row.released = 0;
    if (row.night == night) {
      state.gone[state.gone_hash(row.id)] = 0;
    } else {
      kept.push_back(std::move(row));
    }
  }
  state.rows = std::move(kept);
}

Verdict mixed_up(const PromptFit& fit) {
  Verdict verdict;
  verdict.why = "only " + std::to_string(fit.better) + " of " + std::to_string(fit.of) +
                " new answers fit their own prompt better than that of another row; they may be mixed up, so the "
                "night's rows are left out for good";
  return verdict;
}

}  // namespace

void conclude(LearnerState& state, Night night, const Verdict& verdict, const EventSink& emit) {
  night.verdict = verdict;
  Event event = {{"event", "verdict"}};
  event.update(to_json(verdict));
  event["peak_rss_mb"] = static_cast<double>(process_memory().peak_rss) / 1e6;
  emit(event);
  state.nights.push_back(std::move(night));
}

void run_night(LearnerState& state, int64_t number, Model& model, const BundleText& text, const LearnConfig& config,
               bool are_checked, const EventSink& emit, const StopRequest& stop) {
  release(state, number);
  const NightRows rows = rows_of(state, number, config);
  Night night{number,
              options_of(config),
              static_cast<int64_t>(rows.fresh.size()),
              static_cast<int64_t>(rows.replayed.size()),
              state.rollbacks,
              {},
              {}};
  emit({{"event", "night"},
        {"night", number},
        {"new", rows.fresh.size()},
        {"replayed", rows.replayed.size()},
        {"held_out", rows.judged.size()},
        {"watched", rows.watched.size()},
        {"version", state.current}});
  if (rows.fresh.empty()) {
    Verdict nothing;
    nothing.why = "there is no new row to train on";
    return conclude(state, night, nothing, emit);
  }

  const std::string work = state.folder + "/work";
  std::filesystem::remove_all(work);
  make_folder(work);
  TrainConfig training = config.train;
  training.save_every = INT64_MAX;  // a night that is interrupted leaves nothing
  const RowEncoder encoder(text, training);
  std::vector<LoggedRow> learned = rows.fresh;
  learned.insert(learned.end(), rows.replayed.begin(), rows.replayed.end());
  sort_by_draw(state, "order", number, learned);
  RunPaths paths;
  paths.data = work + "/train.safetensors";
  paths.out = work + "/run";
  const Version* start = state.start();
  if (start != nullptr) paths.adapter = state.folder + "/" + start->folder;
  paths.moments = paths.adapter;
  paths.keep_moments = true;
  const Clock::time_point end = end_of(config.minutes);
  {
    Encoded encoded = encode(learned, encoder, training);
    const double texts = std::round(config.rehearsal * static_cast<double>(learned.size()));
    if (texts > 0) {
      const Clock::time_point half = end_of(config.minutes / 2);
      encoded.add(write_rehearsal(model, text, state, number, static_cast<size_t>(texts), training, half, emit, stop),
                  1);
    }
    write_token_file(paths.data, encoded, packed(encoded, training), training.loss);
  }
  if (training.eval_every > 0) {
    const Encoded watched = encode(rows.watched, encoder, training);
    if (watched.groups.empty()) {
      training.eval_every = training.patience = 0;  // nothing is held out yet
    } else {
      paths.valid = work + "/valid.safetensors";
      write_token_file(paths.valid, watched, packed(watched, training), training.loss);
    }
  }

  train(model, training, paths, end, of_training(emit), stop);
  // Not before the training, whose plan says how much memory evaluations may need.
  night.fit = prompt_fit(model, text, training, state.adapter_folder(), new_rows(state, number), work, stop);
  if (!are_checked && is_mixed_up(night.fit, earlier_fit(state, number))) {
    const Verdict verdict = mixed_up(night.fit);
    night.fit = {};  // later nights are compared with those that are kept
    set_aside(state, number);
    return conclude(state, night, verdict, emit);
  }
  const std::string adapter = std::filesystem::exists(paths.out + "/best") ? paths.out + "/best" : paths.out;

  LearnConfig evaluated = config;
  evaluated.train = training;
  const std::string options = loss_options(training);
  make_folder(state.folder + "/" + kBaseFolder);
  VersionLosses base = known_losses(state, kBaseFolder, options), after;
  if (base.general == 0) compute_losses(model, text, training, "", {}, work, stop, base);
  state.computed[kBaseFolder] = base;
  VersionLosses before = known_losses(state, state.current_folder(), options);
  compute_losses(model, text, training, state.adapter_folder(), rows.judged, work, stop, before);
  state.computed[state.current_folder()] = before;
  if (start != nullptr) pull(model, paths.adapter, adapter, kWay);
  bound_move(model, config.max_move, paths.adapter, adapter);
  const double share = bound_general(model, text, evaluated, paths.adapter, adapter, work, stop, base, after);
  const double moved = length_of_move(model, paths.adapter, adapter);
  compute_losses(model, text, training, adapter, rows.judged, work, stop, after);
  Verdict verdict = decide(before, after, base, config.general_bound);
  verdict.moved = std::isfinite(moved) ? moved : 0;  // JSON has no other numbers
  verdict.share = share;
  learned.insert(learned.end(), rows.watched.begin(), rows.watched.end());  // they chose when to stop
  keep_result(state, number, verdict, paths.out, learned);
  if (verdict.adopted) state.computed[state.find(state.current)->folder] = after;
  conclude(state, night, verdict, emit);
}

}  // namespace mft
