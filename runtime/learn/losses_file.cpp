#include "runtime/learn/losses_file.h"

#include "runtime/base/file.h"
#include "runtime/base/json.h"

namespace mft {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kLossesFile = "/losses.json";
constexpr size_t kMostBytes = size_t{64} << 20;

VersionLosses read(const std::string& folder) {
  VersionLosses losses;
  const std::string path = folder + kLossesFile;
  if (!file_exists(path)) return losses;
  try {
    const Json json = parse_json<Json>(read_text(path, kMostBytes), path);
    for (const auto& [id, row] : json.at("rows").items()) losses.rows[id] = {row.at(0), row.at(1)};
    losses.general = json.at("general");
    losses.options = json.at("options");
  } catch (const std::exception&) {  // it is computed again
    return {};
  }
  return losses;
}

}  // namespace

VersionLosses read_losses(const std::string& folder, const std::string& options) {
  VersionLosses losses = read(folder);
  return losses.options == options ? losses : VersionLosses();
}

void write_losses(const std::string& folder, const VersionLosses& losses) {
  Json rows = Json::object();
  for (const auto& [id, row] : losses.rows) rows[id] = {row.sum, row.count};
  const std::string text = Json{{"general", losses.general}, {"options", losses.options}, {"rows", rows}}.dump() + "\n";
  write_atomically(folder + kLossesFile, {{text.data(), text.size()}});
}

void remove_loss(const std::string& folder, const std::string& id) {
  VersionLosses losses = read(folder);
  if (losses.rows.erase(id) > 0) write_losses(folder, losses);
}

}  // namespace mft
