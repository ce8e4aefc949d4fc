/// Saving and resuming a run: `checkpoint.safetensors` with parameters, AdamW state, losses, validations and
/// sensitivities.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/base/safetensors.h"
#include "runtime/config/arithmetic.h"
#include "runtime/platform/threads.h"
#include "runtime/train/trainer.h"

namespace mft {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostUnitSteps = int64_t{1} << 50;  // over all runs of an adapter

/// One of the JSON texts in the file's metadata. Throws Error where it is missing or no JSON.
Json metadata(const SafeTensors& file, const char* key) {
  const auto text = file.metadata().find(key);
  if (text == file.metadata().end()) fail(file.path(), ": not a mobile-ft checkpoint");
  return parse_json<Json>(text->second, file.path() + ": not a mobile-ft checkpoint");
}

/// What must be the same for a run to go on as if it had never stopped: option names and texts, bundle and data.
Json fingerprint(const TrainConfig& config, const Bundle& bundle, const TokenFile& data) {
  Json run = {{"weights", bundle.weights_id},
              {"program", bundle.files.at("program.pte").sha256},
              {"lora_rank", bundle.lora_rank},
              {"lora_alpha", bundle.lora_alpha},
              {"lora_rslora", bundle.lora_rslora},
              {"lora_targets", bundle.lora_targets},
              {"data", data.sha256()}};
  for (const Option<TrainConfig>& option : train_options()) {
    if (option.decides_result) run[option.name] = option.get(config);
  }
  return run;
}

/// What moments must have in common with a run that goes on with them.
Json moments_of(const TrainConfig& config, const Bundle& bundle) {
  return {{"program", bundle.files.at("program.pte").sha256},
          {"lora_targets", bundle.lora_targets},
          {"lora_train", name_of(config.lora_train)},
          {"optimizer", name_of(config.optimizer)}};
}

/// What checkpoints have of it.
Json to_json(const Resolved& resolved) {
  return {{"stored_units", resolved.stored_units},
          {"mlp_tokens", resolved.mlp_tokens},
          {"threads", resolved.threads},
          {"arithmetic", resolved.arithmetic}};
}

/// Copies piece by piece, and drops the file's pages: as a whole, they would be resident beside the copy.
void copy_from(const SafeTensors& file, const void* from, size_t bytes, void* to) {
  constexpr size_t kPiece = size_t{1} << 20;
  for (size_t done = 0; done < bytes; done += kPiece) {
    file.drop();
    std::memcpy(static_cast<std::byte*>(to) + done, static_cast<const std::byte*>(from) + done,
                std::min(kPiece, bytes - done));
  }
  file.drop();
}

/// A float32 tensor of `bytes` finite numbers. Throws Error naming it.
const void* read_floats(const SafeTensors& file, const std::string& name, size_t bytes) {
  const auto& tensor = file.get(name, "F32");
  if (tensor.bytes != bytes) fail(file.path(), ": tensor ", name, " does not fit the bundle's adapter");
  if (!all_finite(tensor.data, bytes / sizeof(float))) {
    fail(file.path(), ": tensor ", name, " has values that are not finite");
  }
  file.drop();
  return tensor.data;
}

/// How often each of `units` units was updated, of `steps` steps.
std::vector<int64_t> read_unit_steps(const SafeTensors& file, size_t units, int64_t steps) {
  const auto& tensor = file.get("unit_steps", "I64");
  std::vector<int64_t> unit_steps(units);
  if (tensor.bytes != units * sizeof(int64_t)) fail(file.path(), ": the number of units differs from the bundle's");
  std::memcpy(unit_steps.data(), tensor.data, tensor.bytes);
  for (const int64_t n : unit_steps) {
    if (n < 0 || n > steps) fail(file.path(), ": a unit has ", n, " training steps; must be from 0 to ", steps);
  }
  return unit_steps;
}

std::vector<double> read_sensitivities(const SafeTensors& file, size_t units) {
  const auto& tensor = file.get("sensitivities", "F64");
  std::vector<double> sensitivities(units);
  if (tensor.bytes != units * sizeof(double)) {
    fail(file.path(), ": the number of sensitivities differs from the number of units");
  }
  std::memcpy(sensitivities.data(), tensor.data, tensor.bytes);
  for (const double s : sensitivities) {
    if (!(s >= 0 && std::isfinite(s))) fail(file.path(), ": a sensitivity is ", s, "; must be finite and not negative");
  }
  return sensitivities;
}

}  // namespace

Resolved Trainer::resolved() const {
  Resolved resolved;
  if (model_.bundle().rounds_what_it_stores()) resolved.stored_units = plan_.stored;
  resolved.mlp_tokens = plan_.mlp_tokens;
  resolved.threads = model_.threads();
  resolved.compute = config_.compute;
  resolved.arithmetic = arithmetic(config_);
  return resolved;
}

Resolved Trainer::read_resolved(const std::string& folder) {
  const SafeTensors file(folder + kCheckpointFile);
  const Json json = metadata(file, "resolved");
  try {
    ComputeChoice compute;
    read_value(metadata(file, "run").at("compute").get<std::string>(), compute);
    return {json.at("stored_units").get<std::vector<int64_t>>(), integer(json, "mlp_tokens", 1, kMostTokens),
            integer(json, "threads", 1, kMostThreads), compute, json.at("arithmetic")};
  } catch (const std::exception& error) {
    fail(file.path(), ": not a mobile-ft checkpoint (", error.what(), ")");
  }
}

std::map<std::string, std::string> Trainer::read_options(const std::string& folder) {
  const SafeTensors file(folder + kCheckpointFile);
  const Json run = metadata(file, "run");
  std::map<std::string, std::string> texts;
  try {
    for (const Option<TrainConfig>& option : train_options()) {
      if (option.decides_result && run.contains(option.name)) texts[option.name] = run.at(option.name);
    }
  } catch (const Json::exception& error) {
    fail(file.path(), ": not a mobile-ft checkpoint (", error.what(), ")");
  }
  return texts;
}

void Trainer::save_checkpoint(const std::string& folder, const TokenFile& data) const {
  const int64_t size = static_cast<int64_t>(model_.layout().size);
  const int64_t units = static_cast<int64_t>(unit_steps_.size());
  std::vector<NamedTensor> tensors = {{"losses", "F64", {steps_done()}, losses_.data()},
                                      {"unit_steps", "I64", {units}, unit_steps_.data()},
                                      {"adapter", "F32", {size}, model_.parameters()},
                                      {"moments", "U8", {static_cast<int64_t>(moments_.bytes())}, optimizer_.bytes()}};
  if (start_.size() > 0) {
    tensors.push_back({"start", "F32", {static_cast<int64_t>(start_.size() / sizeof(float))}, start_.floats()});
  }
  if (!sensitivities_.empty()) tensors.push_back({"sensitivities", "F64", {units}, sensitivities_.data()});
  write_safetensors(folder + kCheckpointFile, tensors,
                    {{"run", fingerprint(config_, model_.bundle(), data).dump()},
                     {"resolved", to_json(resolved()).dump()},
                     {"seen", Json{{"targets", targets_seen_}}.dump()},
                     {"evaluations", Json{{"data", validated_on}, {"losses", evaluations}}.dump()}});
}

std::string Trainer::check_same_run(const SafeTensors& file, const std::string& folder, const TokenFile& data) const {
  // Options that are newer than the checkpoint had their defaults. An option whose default changed has to be in every
  // checkpoint, as lr and warmup_steps are.
  Json run = fingerprint({}, model_.bundle(), data);
  run.update(metadata(file, "run"));
  run.update(metadata(file, "resolved"));
  Json current = fingerprint(config_, model_.bundle(), data);
  current.update(to_json(resolved()));
  current.erase("arithmetic");  // on another machine the run continues within rounding
  for (const auto& [key, value] : current.items()) {
    if (run.at(key) == value) continue;
    const auto shown = [](const Json& v) { return v.is_string() ? v.get<std::string>() : v.dump(); };
    fail(file.path(), ": the run was started with ", key, " ", shown(run.at(key)), ", not ", shown(value),
         "; a resumed run needs the same bundle, data and options. To continue with others, start a new run from the "
         "adapter in ",
         folder, ", in another output folder");
  }
  return run.at("arithmetic");
}

void Trainer::save_moments(const std::string& folder) const {
  write_safetensors(folder + kMomentsFile,
                    {{"unit_steps", "I64", {static_cast<int64_t>(unit_steps_.size())}, unit_steps_.data()},
                     {"moments", "U8", {static_cast<int64_t>(moments_.bytes())}, optimizer_.bytes()}},
                    {{"of", moments_of(config_, model_.bundle()).dump()}});
}

bool Trainer::take_moments(const std::string& folder) {
  if (!file_exists(folder + kMomentsFile)) return false;
  const SafeTensors file(folder + kMomentsFile);
  if (metadata(file, "of") != moments_of(config_, model_.bundle())) return false;
  const auto& moments = file.get("moments", "U8");
  if (moments.bytes != moments_.bytes()) fail(file.path(), ": tensor moments does not fit the bundle's adapter");
  if (!moments_.all_finite(moments.data)) fail(file.path(), ": tensor moments has values that are not finite");
  unit_steps_ = read_unit_steps(file, unit_steps_.size(), kMostUnitSteps);
  copy_from(file, moments.data, moments_.bytes(), optimizer_.bytes());
  return true;
}

void Trainer::resume(const std::string& folder, const TokenFile& data) {
  const SafeTensors file(folder + kCheckpointFile);
  const Json evaluated = metadata(file, "evaluations");
  Evaluations earlier;
  std::string earlier_data;
  int64_t targets_seen = 0;
  try {
    begun_with_ = check_same_run(file, folder, data);
    targets_seen = integer(metadata(file, "seen"), "targets", 0, int64_t{1} << 60);
    earlier = evaluated.at("losses").get<Evaluations>();
    earlier_data = evaluated.at("data");
  } catch (const Json::exception& error) {
    fail(file.path(), ": not a mobile-ft checkpoint (", error.what(), ")");
  }
  // Everything is checked before any of it is used.
  const auto& losses = file.get("losses", "F64");
  const size_t count = losses.bytes / sizeof(double);
  if (count > static_cast<size_t>(config_.steps)) fail(file.path(), ": has more losses than the run has steps");
  const void* parameters = read_floats(file, "adapter", model_.layout().size * sizeof(float));
  const void* start = start_.size() > 0 ? read_floats(file, "start", start_.size()) : nullptr;
  const auto& moments = file.get("moments", "U8");
  if (moments.bytes != moments_.bytes()) fail(file.path(), ": tensor moments does not fit the bundle's adapter");
  if (!moments_.all_finite(moments.data)) fail(file.path(), ": tensor moments has values that are not finite");
  std::vector<int64_t> unit_steps = read_unit_steps(file, unit_steps_.size(), static_cast<int64_t>(count));
  const int64_t measured = config_.schedule.measuring_step();
  std::vector<double> sensitivities;
  if (measured >= 0 && static_cast<int64_t>(count) > measured) {
    sensitivities = read_sensitivities(file, unit_steps_.size());
  }

  copy_from(file, parameters, model_.layout().size * sizeof(float), model_.parameters());
  copy_from(file, moments.data, moments_.bytes(), optimizer_.bytes());
  if (start != nullptr) copy_from(file, start, start_.size(), start_.bytes());
  unit_steps_ = std::move(unit_steps);
  use_sensitivities(std::move(sensitivities));
  prefix_.reset();
  losses_.resize(count);
  if (count > 0) std::memcpy(losses_.data(), losses.data, losses.bytes);
  targets_seen_ = targets_seen;
  evaluations = std::move(earlier);
  validated_on = std::move(earlier_data);
}

}  // namespace mft
