/// Saving and resuming a run: `checkpoint.safetensors` with parameters, AdamW state and losses.

#include <cstring>
#include <nlohmann/json.hpp>

#include "runtime/core/error.h"
#include "runtime/core/safetensors.h"
#include "runtime/core/trainer.h"

namespace mft {
namespace {

constexpr const char* kFile = "/checkpoint.safetensors";

}  // namespace

std::string Trainer::fingerprint(const TokenFile& data) const {
  const Schedule& s = config_.schedule;
  return nlohmann::ordered_json{
      {"weights_crc32", model_.bundle().weights_crc32},
      {"lora_rank", model_.bundle().lora_rank},
      {"lora_alpha", model_.bundle().lora_alpha},
      {"lora_targets", model_.bundle().lora_targets},
      {"data_crc32", data.crc32()},
      {"steps", config_.steps},
      {"seq_len", config_.seq_len},
      {"batch_size", config_.batch_size},
      {"grad_accum", config_.grad_accum},
      {"lr", config_.lr},
      {"cosine", config_.cosine},
      {"warmup_steps", config_.warmup_steps},
      {"weight_decay", config_.weight_decay},
      {"max_grad_norm", config_.max_grad_norm},
      {"skip_unselected", config_.skip_unselected},
      {"optimizer", static_cast<int>(config_.optimizer)},
      {"schedule", s.name()},
      {"selection", static_cast<int>(s.selection)},
      {"ratio", s.ratio},
      {"suffix_depths", s.suffix_depths},
      {"seed", config_.seed},
  }
      .dump();
}

void Trainer::save_checkpoint(const std::string& folder, const TokenFile& data) const {
  const int64_t size = static_cast<int64_t>(model_.layout().size);
  const int64_t units = static_cast<int64_t>(unit_steps_.size());
  write_safetensors(folder + kFile,
                    {{"losses", "F64", {steps_done()}, losses_.data()},
                     {"unit_steps", "I64", {units}, unit_steps_.data()},
                     {"parameters", "F32", {size}, model_.parameters()},
                     {"moments", "U8", {static_cast<int64_t>(moments_.bytes())}, optimizer_.bytes()}},
                    {{"run", fingerprint(data)}});
}

void Trainer::resume(const std::string& folder, const TokenFile& data) {
  const SafeTensors file(folder + kFile);
  const auto run = file.metadata().find("run");
  if (run == file.metadata().end()) fail(file.path(), ": not a checkpoint of this program");
  try {
    const auto saved = nlohmann::ordered_json::parse(run->second);
    const auto current = nlohmann::ordered_json::parse(fingerprint(data));
    for (const auto& [key, value] : current.items()) {
      if (saved.at(key) != value) {
        fail(file.path(), ": the run was started with ", key, " ", saved.at(key).dump(), ", not ", value.dump(),
             "; --resume needs the same bundle, data and options");
      }
    }
  } catch (const nlohmann::json::exception& error) {
    fail(file.path(), ": not a checkpoint of this program (", error.what(), ")");
  }
  const auto& losses = file.get("losses", "F64");
  const auto& steps = file.get("unit_steps", "I64");
  const size_t bytes = model_.layout().size * sizeof(float);
  const size_t count = losses.bytes / sizeof(double);
  // All of it is checked before any of it is taken over.
  const auto& parameters = file.get("parameters", "F32");
  const auto& moments = file.get("moments", "U8");
  if (parameters.bytes != bytes) fail(file.path(), ": tensor parameters does not fit the bundle's adapter");
  if (moments.bytes != moments_.bytes()) fail(file.path(), ": tensor moments does not fit the bundle's adapter");
  if (steps.bytes != unit_steps_.size() * sizeof(int64_t)) fail(file.path(), ": made for another number of units");
  if (count > static_cast<size_t>(config_.steps)) fail(file.path(), ": more losses than steps");
  std::memcpy(model_.parameters(), parameters.data, bytes);
  std::memcpy(optimizer_.bytes(), moments.data, moments_.bytes());
  std::memcpy(unit_steps_.data(), steps.data, steps.bytes);
  losses_.resize(count);
  if (count > 0) std::memcpy(losses_.data(), losses.data, losses.bytes);
}

}  // namespace mft
