#include "runtime/learn/learner_state.h"

#include <algorithm>
#include <filesystem>
#include <random>
#include <set>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/base/sha256.h"
#include "runtime/data/line_file.h"

namespace mft {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kFormat = 1;
constexpr int64_t kMost = int64_t{1} << 40;
constexpr size_t kMostStateBytes = size_t{64} << 20;
constexpr const char* kStateFile = "/state.json";
constexpr const char* kFirstRows = "rows-1.jsonl";  // there before the first state.json

std::string hash_of(const std::string& text) {
  Sha256 sha;
  sha.update(text.data(), text.size());
  return sha.hex().substr(0, 16);
}

Verdict verdict_from(const Json& json) {
  return {json.at("adopted"), json.at("undecided"), json.at("why"),  integer(json, "rows", 0, kMost),
          json.at("gain"),    json.at("chance"),    json.at("loss"), json.at("general"),
          json.at("moved"),   json.at("share")};
}

Json to_json(const Version& v) {
  return {{"number", v.number}, {"parent", v.parent}, {"night", v.night}, {"folder", v.folder}, {"trained", v.trained}};
}

Json to_json(const LearnerState& s) {
  Json nights = Json::array(), versions = Json::array();
  for (const Night& n : s.nights) {
    nights.push_back({{"number", n.number},
                      {"added", n.added},
                      {"replayed", n.replayed},
                      {"rollbacks", n.rollbacks},
                      {"verdict", to_json(n.verdict)},
                      {"fit", {n.fit.better, n.fit.of}},
                      {"options", n.options}});
  }
  for (const Version& v : s.versions) versions.push_back(to_json(v));
  Json json = {{"format", kFormat},        {"weights", s.weights},     {"adapter", s.adapter},
               {"loss", s.loss},           {"seed", s.seed},           {"held_out", s.held_out},
               {"salt", s.salt},           {"current", s.current},     {"next_version", s.next_version},
               {"next_file", s.next_file}, {"rollbacks", s.rollbacks}, {"rows_file", s.rows_file},
               {"nights", nights},         {"versions", versions}};
  if (s.candidate) json["candidate"] = to_json(*s.candidate);
  return json;
}

/// A name of a file or folder in the state's folder, which must not lead out of it.
std::string name_in(const Json& json, const char* key) {
  const std::string name = json.at(key);
  if (name.find("..") != std::string::npos || (!name.empty() && name[0] == '/')) fail(key, " is \"", name, '"');
  return name;
}

Version version_from(const Json& json) {
  return {integer(json, "number", 1, kMost), integer(json, "parent", 0, kMost), integer(json, "night", 1, kMost),
          name_in(json, "folder"), json.at("trained")};
}

/// Of a state or night; none where it was written before they were counted.
int64_t rollbacks_of(const Json& json) { return json.contains("rollbacks") ? integer(json, "rollbacks", 0, kMost) : 0; }

PromptFit fit_of(const Json& night) {
  if (!night.contains("fit")) return {};
  const PromptFit fit = {night.at("fit").at(0), night.at("fit").at(1)};
  if (fit.better < 0 || fit.better > fit.of || fit.of > kMost) fail("fit is ", night.at("fit").dump());
  return fit;
}

LearnerState from_json(const Json& json, const std::string& folder) {
  if (integer(json, "format", 1, kMost) != kFormat) {
    fail("has format ", json.at("format").dump(), "; this version reads ", kFormat);
  }
  LearnerState s;
  s.folder = folder;
  s.weights = json.at("weights");
  s.adapter = json.at("adapter");
  s.loss = json.at("loss");
  s.seed = integer(json, "seed", 0, INT64_MAX);
  s.held_out = json.at("held_out");
  s.salt = json.at("salt");
  s.current = integer(json, "current", 0, kMost);
  s.next_version = integer(json, "next_version", 1, kMost);
  s.next_file = integer(json, "next_file", 1, kMost);
  s.rollbacks = rollbacks_of(json);
  s.rows_file = name_in(json, "rows_file");
  for (const Json& n : json.at("nights")) {
    s.nights.push_back({integer(n, "number", 1, kMost), n.at("options"), integer(n, "added", 0, kMost),
                        integer(n, "replayed", 0, kMost), rollbacks_of(n), verdict_from(n.at("verdict")), fit_of(n)});
  }
  for (const Json& v : json.at("versions")) s.versions.push_back(version_from(v));
  if (json.contains("candidate")) s.candidate = version_from(json.at("candidate"));
  for (size_t i = 0; i < s.versions.size(); ++i) {
    const Version& v = s.versions[i];
    const bool ascends = i == 0 || s.versions[i - 1].number < v.number;
    if (!ascends || v.parent >= v.number || v.number >= s.next_version) {
      fail("version ", v.number, " of ", v.parent, ": must follow its parent and the versions before it");
    }
  }
  for (size_t i = 1; i < s.nights.size(); ++i) {
    if (s.nights[i].number <= s.nights[i - 1].number)
      fail("night ", s.nights[i].number, ": must follow those before it");
  }
  if (s.current != 0 && s.adapter_folder().empty()) fail("current is ", s.current, ", which is not kept");
  if (s.candidate && s.candidate->folder.empty()) fail("candidate has no folder");
  if (s.candidate && s.candidate->parent != s.current) {
    fail("candidate is of version ", s.candidate->parent, "; current is ", s.current);
  }
  if (s.nights.empty() && (s.candidate || !s.versions.empty())) fail("there are versions, but no nights");
  return s;
}

LearnerState parse_state(const std::string& folder) {
  const std::string path = folder + kStateFile;
  if (!file_exists(path)) fail(folder, ": is not a learner's folder; it has no state.json");
  const Json json = parse_json<Json>(read_text(path, kMostStateBytes), path + ": not JSON");
  try {
    return from_json(json, folder);
  } catch (const Json::exception& error) {
    fail(path, ": ", error.what());
  } catch (const Error& error) {
    fail(path, ": ", error.what());
  }
}

void read_rows(LearnerState& state) {
  const std::string path = state.folder + "/" + state.rows_file;
  for_each_line(path, [&](int64_t number, std::string_view line) {
    const std::string where = path + ":" + std::to_string(number);
    try {
      const Json json = parse_json<Json>(line, where);
      const int64_t night = integer(json, "night", 0, kMost);
      if (json.contains("gone")) {
        state.gone[json.at("gone")] = night;
      } else {
        const int64_t released = json.contains("released") ? integer(json, "released", night, kMost) : 0;
        state.rows.push_back({json.at("id"), night, json.at("row").get<std::string>(), released});
      }
    } catch (const Json::exception& error) {
      fail(where, ": not a row of a learner (", error.what(), ")");
    }
  });
}

std::string rows_text(const LearnerState& state) {
  std::string text;
  for (const auto& [hash, night] : state.gone) text += Json{{"gone", hash}, {"night", night}}.dump() + "\n";
  for (const LoggedRow& row : state.rows) {
    // The row is a string, so that it stays what it was, to the last blank.
    Json json = {{"id", row.id}, {"night", row.night}, {"row", row.json}};
    if (row.released != 0) json["released"] = row.released;
    text += json.dump() + "\n";
  }
  return text;
}

/// The form of a bundle's adapter.
std::string adapter_form_of(const Bundle& bundle) {
  return Json{{"rank", bundle.lora_rank},
              {"alpha", bundle.lora_alpha},
              {"rslora", bundle.lora_rslora},
              {"targets", bundle.lora_targets}}
      .dump();
}

std::string new_salt() {
  std::random_device random;
  std::string salt;
  for (int i = 0; i < 4; ++i) salt += std::to_string(random()) + "-";
  return salt;
}

}  // namespace

nlohmann::ordered_json to_json(const Verdict& v) {
  return {{"adopted", v.adopted}, {"undecided", v.undecided}, {"why", v.why},   {"rows", v.rows},
          {"gain", v.gain},       {"chance", v.chance},       {"loss", v.loss}, {"general", v.general},
          {"moved", v.moved},     {"share", v.share}};
}

const Version* LearnerState::find(int64_t version) const {
  const auto found =
      std::find_if(versions.begin(), versions.end(), [&](const Version& v) { return v.number == version; });
  return found == versions.end() ? nullptr : &*found;
}

std::string LearnerState::adapter_folder() const {
  const Version* version = find(current);
  return version == nullptr || version->folder.empty() ? "" : folder + "/" + version->folder;
}

double LearnerState::draw(const std::string& purpose, int64_t night, const std::string& id) const {
  const std::string key = std::to_string(seed) + " " + purpose + " " + std::to_string(night) + " " + id;
  return static_cast<double>(std::stoull(hash_of(key), nullptr, 16) >> 11) * 0x1p-53;
}

bool LearnerState::is_held_out(const LoggedRow& row, int64_t night) const {
  return draw("held out", 0, row.id) < held_out && (row.released == 0 || row.released > night);
}

std::string LearnerState::gone_hash(const std::string& id) const { return hash_of(salt + " " + id); }

bool LearnerState::knows(const std::string& id) const {
  return gone.count(gone_hash(id)) > 0 ||
         std::any_of(rows.begin(), rows.end(), [&](const LoggedRow& row) { return row.id == id; });
}

bool is_learner_state(const std::string& folder) { return file_exists(folder + kStateFile); }

LearnerState new_learner_state(const std::string& folder, const Bundle& bundle) {
  static const std::set<std::string> begun = {kFirstRows, std::string(kFirstRows) + ".partial", "state.json.partial"};
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (begun.count(entry.path().filename().string()) == 0) {
      fail(folder, ": is not a learner's folder, and not empty; choose an empty or a new one");
    }
  }
  LearnerState state;
  state.folder = folder;
  state.weights = bundle.weights_id;
  state.adapter = adapter_form_of(bundle);
  state.salt = new_salt();
  return state;
}

LearnerState read_learner_state(const std::string& folder) {
  LearnerState state = parse_state(folder);
  // A reader without the lock may come as another call replaces both files.
  if (!file_exists(folder + "/" + state.rows_file)) state = parse_state(folder);
  read_rows(state);
  return state;
}

void check_bundle(const LearnerState& state, const Bundle& bundle) {
  if (state.weights != bundle.weights_id) {
    fail(state.folder, ": belongs to another model than this bundle's; use that bundle, or another folder");
  }
  if (state.adapter != adapter_form_of(bundle)) {
    fail(state.folder, ": its adapter has another form than this bundle's, ", state.adapter, ", not ",
         adapter_form_of(bundle));
  }
}

void bound_versions(LearnerState& state, int64_t keep) {
  int64_t kept = 0;
  for (auto version = state.versions.rbegin(); version != state.versions.rend(); ++version) {
    if (version->folder.empty() || version->number == state.current) continue;
    if (++kept > keep - 1) version->folder.clear();
  }
}

void write_learner_state(LearnerState& state) {
  state.rows_file = "rows-" + std::to_string(state.next_file++) + ".jsonl";
  const std::string text = to_json(state).dump(1) + "\n";
  if (text.size() > kMostStateBytes) fail(state.folder, ": state.json would be too large to be read again");
  const std::string rows = rows_text(state);
  write_atomically(state.folder + "/" + state.rows_file, {{rows.data(), rows.size()}});
  write_atomically(state.folder + kStateFile, {{text.data(), text.size()}});
  try {
    for (const auto& [folder, losses] : state.computed) {
      if (std::filesystem::exists(state.folder + "/" + folder)) write_losses(state.folder + "/" + folder, losses);
    }
  } catch (const std::exception&) {  // they are computed again
  }
  state.computed.clear();
  remove_leftovers(state);
}

std::string remove_leftovers(const LearnerState& state) noexcept {
  try {
    std::set<std::string> named = {state.rows_file, kBaseFolder};
    for (const Version& version : state.versions) named.insert(version.folder);
    if (state.candidate) named.insert(state.candidate->folder);
    const auto ours = [](const std::string& name) {
      return name.rfind("rows-", 0) == 0 || name.rfind("versions/", 0) == 0 || name == "work" ||
             (name.size() > 8 && name.compare(name.size() - 8, 8, ".partial") == 0);
    };
    std::string left;
    for (const std::string& inside : {std::string(), std::string("versions/")}) {
      std::error_code error;
      std::vector<std::filesystem::path> paths;
      for (std::filesystem::directory_iterator entry(state.folder + "/" + inside, error), end; !error && entry != end;
           entry.increment(error)) {
        const std::string name = inside + entry->path().filename().string();
        if (ours(name) && named.count(name) == 0) paths.push_back(entry->path());
      }
      for (const std::filesystem::path& path : paths) {
        std::filesystem::remove_all(path, error);
        if (error) left = path.string();
      }
    }
    return left;
  } catch (const std::exception&) {  // what cannot be removed now is removed by the next call
    return state.folder;
  }
}

bool is_written(const LearnerState& state) noexcept {
  try {
    return read_learner_state(state.folder).rows_file == state.rows_file;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace mft
