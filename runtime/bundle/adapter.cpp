#include "runtime/bundle/adapter.h"

#include <cmath>
#include <cstring>
#include <map>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/base/safetensors.h"
#include "runtime/bundle/program.h"
#include "runtime/dispatch/kernels.h"

namespace mft {
namespace {

constexpr const char* kWeightsFile = "/adapter_model.safetensors";
constexpr const char* kConfigFile = "/adapter_config.json";
constexpr const char* kAnotherBundle = "; export a bundle for this adapter with `mobile-ft export MODEL --adapter DIR`";
// Prefixes of PEFT's names of tensors in the decoder. In Transformers' models with vision, the decoder is nested
// deeper, and before version 4.52 it was at another place.
constexpr std::string_view kPrefixes[] = {"base_model.model.model.language_model.",
                                          "base_model.model.model.text_model.",
                                          "base_model.model.language_model.model.", "base_model.model.model."};
// Settings of PEFT that are not supported, and values of init_lora_weights that change the base model, as in
// mobile_ft/model/lora.py.
constexpr const char* kUnsupported[] = {"use_dora",
                                        "use_qalora",
                                        "use_bdlora",
                                        "lora_bias",
                                        "fan_in_fan_out",
                                        "rank_pattern",
                                        "alpha_pattern",
                                        "modules_to_save",
                                        "trainable_token_indices",
                                        "layer_replication",
                                        "alora_invocation_tokens",
                                        "arrow_config",
                                        "kasa_config",
                                        "monteclora_config"};
constexpr std::string_view kChangeTheBase[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};

using Json = nlohmann::ordered_json;

/// Fails if the file describes more than LoRA on linear layers.
void check_supported(const std::string& path, const Json& config) {
  if (config.value("peft_type", "LORA") != "LORA") fail(path, ": peft_type must be LORA");
  if (config.value("bias", "none") != "none") fail(path, ": bias must be none");
  for (const char* key : kUnsupported) {
    const Json value = config.value(key, Json());
    if (!value.empty() && value != false) fail(path, ": ", key, " is not supported");
  }
  const Json init = config.value("init_lora_weights", Json());
  if (!init.is_string()) return;
  const std::string name = init;
  std::string lower = name;
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (const std::string_view prefix : kChangeTheBase) {
    if (lower.compare(0, prefix.size(), prefix) == 0) {
      fail(path, ": init_lora_weights is ", name, ", which changes the base model and is not supported");
    }
  }
}

void check_config(const std::string& path, const Bundle& bundle) {
  try {
    const Json config = parse_json<Json>(read_text(path, kMostJsonBytes), path + ": not a PEFT adapter configuration");
    check_supported(path, config);
    const auto require = [&](const char* key, double expected) {
      const double found = config.at(key);
      if (found != expected) {
        fail(path, ": ", key, " is ", found, "; the bundle was exported with ", expected, kAnotherBundle);
      }
    };
    require("r", static_cast<double>(bundle.lora_rank));
    require("lora_alpha", bundle.lora_alpha);
    if (config.value("use_rslora", false) != bundle.lora_rslora) {
      fail(path, ": use_rslora must be ", bundle.lora_rslora ? "true" : "false", ", as in the bundle", kAnotherBundle);
    }
  } catch (const Json::exception& error) {
    fail(path, ": not a PEFT adapter configuration (", error.what(), ")");
  }
}

/// A tensor's name within the decoder, such as "layers.0.mlp.up_proj.lora_A.weight", or the whole name if it is not in
/// the decoder.
std::string_view within_decoder(std::string_view name) {
  for (const std::string_view prefix : kPrefixes) {
    if (name.compare(0, prefix.size(), prefix) == 0) return name.substr(prefix.size());
  }
  return name;
}

/// Copies a tensor of float32, float16 or bfloat16, aligned or not. Returns false for another type.
bool copy_floats(const SafeTensors::View& view, size_t count, float* to) {
  if (view.dtype == "F32") {
    std::memcpy(to, view.data, view.bytes);
    return true;
  }
  if (view.dtype != "F16" && view.dtype != "BF16") return false;
  std::vector<uint16_t> halves(count);
  std::memcpy(halves.data(), view.data, view.bytes);
  if (view.dtype == "F16") {
    kernels().from_half(halves.data(), static_cast<int64_t>(count), to);
    return true;
  }
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = static_cast<uint32_t>(halves[i]) << 16;
    std::memcpy(to + i, &bits, sizeof(bits));
  }
  return true;
}

}  // namespace

AdapterLayout::AdapterLayout(const Bundle& bundle, const Program& program) {
  for (const UnitInfo& unit : bundle.units) {
    const UnitKind& kind = bundle.kinds[unit.kind];
    const std::string method = kind.name + "_forward";
    const size_t first = (kind.takes_positions ? 2 : 1) + kind.side_inputs() + unit.weights.size();
    std::vector<AdapterTensor> tensors;
    for (size_t i = 0; i < unit.lora.size(); ++i) {
      const std::vector<int64_t> sizes = program.input_sizes(method, first + i);
      if (sizes.size() != 2) fail(bundle.file("program.pte"), ": method ", method, " does not match bundle.json");
      tensors.push_back({unit.lora[i], sizes[0], sizes[1], i % 2 == 0, 0});
    }
    const size_t begin = size;
    for (const bool is_a : {true, false}) {
      if (!is_a) first_b_.push_back(size);
      for (AdapterTensor& tensor : tensors) {
        if (tensor.is_a != is_a) continue;
        tensor.offset = size;
        size += tensor.size();
      }
    }
    ranges_.push_back({begin, size});
    units.push_back(std::move(tensors));
  }
  if (size == 0) fail(bundle.file("bundle.json"), ": the bundle adapts no linear layer");
}

bool all_finite(const std::byte* values, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    float value;
    std::memcpy(&value, values + i * sizeof(float), sizeof(float));
    if (!std::isfinite(value)) return false;
  }
  return true;
}

void load_adapter(const std::string& folder, const Bundle& bundle, const AdapterLayout& layout, float* parameters) {
  check_config(folder + kConfigFile, bundle);
  const SafeTensors file(folder + kWeightsFile);
  std::map<std::string_view, const std::string*> names;  // key: name within the decoder
  for (const auto& [name, view] : file.tensors()) {
    const auto [other, first] = names.emplace(within_decoder(name), &name);
    if (!first) fail(file.path(), ": tensors ", *other->second, " and ", name, " belong to the same linear layer");
  }
  for (const auto& unit : layout.units) {
    for (const AdapterTensor& tensor : unit) {
      const auto found = names.find(within_decoder(tensor.name));
      if (found == names.end()) fail(file.path(), ": tensor ", tensor.name, " is missing", kAnotherBundle);
      const std::string& name = *found->second;
      names.erase(found);
      const SafeTensors::View& view = file.tensors().at(name);
      if (view.shape != std::vector<int64_t>{tensor.rows, tensor.cols}) {
        fail(file.path(), ": tensor ", name, " has the wrong shape; the bundle's is [", tensor.rows, ", ", tensor.cols,
             "]", kAnotherBundle);
      }
      float* const to = parameters + tensor.offset;
      if (!copy_floats(view, tensor.size(), to)) {
        fail(file.path(), ": tensor ", name, " is ", view.dtype, "; it must be F32, F16 or BF16");
      }
      if (!all_finite(reinterpret_cast<const std::byte*>(to), tensor.size())) {
        fail(file.path(), ": tensor ", name, " has values that are not finite");
      }
    }
    file.drop();  // what was copied would be resident twice
  }
  if (!names.empty()) {
    fail(file.path(), ": tensor ", *names.begin()->second, " adapts a layer that the bundle does not", kAnotherBundle);
  }
}

void save_adapter(const std::string& folder, const Bundle& bundle, const AdapterLayout& layout,
                  const float* parameters) {
  std::vector<NamedTensor> tensors;
  for (const auto& unit : layout.units) {
    for (const AdapterTensor& t : unit) {
      tensors.push_back({t.name, "F32", {t.rows, t.cols}, parameters + t.offset});
    }
  }
  write_safetensors(folder + kWeightsFile, tensors, {{"format", "pt"}});
  // The export has written the same fields (mobile_ft/model/lora.py), so the bundle's own file is copied.
  const std::string config = read_text(bundle.verified("adapter_config.json"), kMostJsonBytes);
  write_atomically(folder + kConfigFile, {{config.data(), config.size()}});
}

}  // namespace mft
