#include "runtime/learn/learner.h"

#include <algorithm>
#include <ctime>
#include <set>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/base/sha256.h"
#include "runtime/data/line_file.h"
#include "runtime/learn/night.h"

namespace mft {
namespace {

using Json = nlohmann::json;

/// The id that a row has itself, or a hash of its text. 5 and "5" are the same id.
std::string id_of(std::string_view row) {
  const Json json = parse_json<Json>(row, "not JSON");
  if (json.contains("id") && !json.at("id").is_null()) {
    const Json& id = json.at("id");
    if (id.is_string() && !id.get<std::string>().empty()) return id.get<std::string>();
    if (id.is_number_integer()) return id.dump();
    fail("\"id\" is ", id.dump(), "; it must be a string that is not empty, or an integer");
  }
  Sha256 sha;
  sha.update(row.data(), row.size());
  return sha.hex().substr(0, 16);
}

/// A template that shows the date gets that of the night, which is recorded.
void set_date(LearnConfig& config, const BundleText& text) {
  if (text.chat_template() == nullptr || !text.chat_template()->shows_date()) return;
  if (!config.train.data.chat_template_date.empty()) return;
  const std::time_t now = std::time(nullptr);
  std::tm date{};
  localtime_r(&now, &date);
  char day[16];
  std::strftime(day, sizeof(day), "%Y-%m-%d", &date);
  config.train.data.chat_template_date = day;
}

/// Reads the state, or makes one, with what the first night sets for all. Throws Error if this night has other options.
LearnerState open_state(const std::string& folder, const Bundle& bundle, const LearnConfig& config) {
  const bool is_new = !is_learner_state(folder);
  LearnerState state = is_new ? new_learner_state(folder, bundle) : read_learner_state(folder);
  check_bundle(state, bundle);
  if (state.nights.empty()) {
    state.loss = name_of(config.train.loss);
    state.seed = config.train.seed;
    state.held_out = config.held_out;
  }
  const auto check = [&](const char* option, const auto& value, const auto& first) {
    if (value != first) fail(option, ' ', value, ": ", folder, " was begun with ", option, ' ', first);
  };
  check("loss", std::string(name_of(config.train.loss)), state.loss);
  check("seed", config.train.seed, state.seed);
  check("held_out", config.held_out, state.held_out);
  // From now on, other files in the folder are leftovers.
  if (is_new) write_learner_state(state);
  remove_leftovers(state);
  return state;
}

/// Adds the rows of a file that are new. Returns the event about them.
Event add_rows(LearnerState& state, const std::string& data, int64_t night, const BundleText& text,
               const TrainConfig& config) {
  const RowEncoder encoder(text, config);
  int64_t added = 0, known = 0, bad = 0, dropped = 0;
  std::set<std::string> ids;
  for (const LoggedRow& row : state.rows) ids.insert(row.id);
  for_each_line(data, [&](int64_t number, std::string_view line) {
    EncodedRows found;
    std::string id;
    try {
      id = id_of(line);
      if (ids.count(id) > 0 || state.gone.count(state.gone_hash(id)) > 0) {
        ++known;
        return;
      }
      found = encoder.encode(line);
    } catch (const Error& error) {
      if (config.data.on_bad_row == OnBadRow::kError) fail(data, ":", number, ": ", error.what());
      ++bad;
      return;
    }
    if (found.groups.empty()) {
      ++dropped;
    } else {
      ids.insert(id);
      state.rows.push_back({id, night, std::string(line)});
      ++added;
    }
  });
  return {{"event", "rows"}, {"added", added}, {"known", known}, {"bad", bad}, {"dropped", dropped}};
}

/// Drops rows that a draw selects until the others fit, after a night.
void bound_rows(LearnerState& state, int64_t night, uint64_t most) {
  std::vector<std::pair<double, size_t>> order;
  uint64_t bytes = 0;
  for (size_t i = 0; i < state.rows.size(); ++i) {
    order.emplace_back(state.draw("kept", 0, state.rows[i].id), i);
    bytes += state.rows[i].json.size();
  }
  std::sort(order.rbegin(), order.rend());
  std::set<size_t> dropped;
  for (size_t i = 0; i < order.size() && bytes > most; ++i) {
    dropped.insert(order[i].second);
    bytes -= state.rows[order[i].second].json.size();
  }
  std::vector<LoggedRow> kept;
  for (size_t i = 0; i < state.rows.size(); ++i) {
    LoggedRow& row = state.rows[i];
    if (dropped.count(i) > 0) {
      state.gone[state.gone_hash(row.id)] = state.is_held_out(row, night) ? night : std::max(row.night, row.released);
    } else {
      kept.push_back(std::move(row));
    }
  }
  state.rows = std::move(kept);
}

}  // namespace

std::map<std::string, std::string> learner_options(const std::string& folder,
                                                   std::map<std::string, std::string> given) {
  if (!is_learner_state(folder)) return given;
  const LearnerState state = read_learner_state(folder);
  if (state.nights.empty()) return given;
  given.insert({{"loss", state.loss}, {"seed", text_of(state.seed)}, {"held_out", text_of(state.held_out)}});
  return given;
}

void learn(const std::string& folder, Model& model, const std::string& data, const LearnConfig& given,
           const EventSink& emit, const StopRequest& stop) {
  make_folder(folder);
  const LockedFolder lock(folder);
  const BundleText text(model.bundle());
  LearnConfig config = given;
  set_date(config, text);
  LearnerState state = open_state(folder, model.bundle(), config);
  const int64_t number = state.nights.empty() ? 1 : state.nights.back().number + 1;
  commit(state, [&] {
    emit(add_rows(state, data, number, text, config.train));
    run_night(state, number, model, text, config, /*are_checked=*/false, emit, stop);
    bound_rows(state, number, config.log_bytes);
    bound_versions(state, config.keep);
  });
  emit(describe(state));
}

void roll_back(const std::string& folder, int64_t version) {
  const LockedFolder lock(folder);
  LearnerState state = read_learner_state(folder);
  const Version* found = state.find(version);
  if (version != 0 && found == nullptr) fail("version ", version, ": ", folder, " has no such version");
  if (version != 0 && found->folder.empty()) fail("version ", version, ": is not kept any more");
  state.current = version;
  state.candidate.reset();
  ++state.rollbacks;
  write_learner_state(state);
}

Event describe(const LearnerState& state) {
  Event versions = Event::array(), nights = Event::array();
  for (const Version& v : state.versions) {
    const std::string folder = v.folder.empty() ? "" : state.folder + "/" + v.folder;
    versions.push_back({{"version", v.number}, {"parent", v.parent}, {"night", v.night}, {"folder", folder}});
  }
  for (const Night& n : state.nights) {
    Event night = {{"night", n.number}, {"new", n.added}, {"replayed", n.replayed}};
    night.update(to_json(n.verdict));
    nights.push_back(std::move(night));
  }
  const int64_t last = state.nights.empty() ? 0 : state.nights.back().number;
  const int64_t held_out = std::count_if(state.rows.begin(), state.rows.end(),
                                         [&](const LoggedRow& row) { return state.is_held_out(row, last); });
  return {{"event", "done"},           {"version", state.current}, {"adapter", state.adapter_folder()},
          {"rows", state.rows.size()}, {"held_out", held_out},     {"versions", versions},
          {"nights", nights}};
}

}  // namespace mft
