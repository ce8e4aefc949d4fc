#include "runtime/core/adapter.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/core/error.h"
#include "runtime/core/file.h"
#include "runtime/core/json.h"
#include "runtime/core/program.h"
#include "runtime/core/safetensors.h"

namespace mft {
namespace {

constexpr const char* kWeightsFile = "/adapter_model.safetensors";
constexpr const char* kConfigFile = "/adapter_config.json";

using Json = nlohmann::ordered_json;

void check_config(const std::string& path, const Bundle& bundle) {
  try {
    const Json config = parse_json<Json>(read_text(path, kMostJsonBytes), path + ": not a PEFT adapter configuration");
    const auto require = [&](const char* key, double expected) {
      const double found = config.at(key);
      if (found != expected) fail(path, ": ", key, " is ", found, "; the bundle was exported with ", expected);
    };
    require("r", static_cast<double>(bundle.lora_rank));
    require("lora_alpha", bundle.lora_alpha);
    for (const char* key : {"rank_pattern", "alpha_pattern"}) {
      if (config.contains(key) && !config.at(key).empty()) fail(path, ": ", key, " is not supported");
    }
    if (config.value("use_rslora", false) != bundle.lora_rslora) {
      fail(path, ": use_rslora is not as in the bundle, ", bundle.lora_rslora ? "true" : "false");
    }
    if (config.value("use_dora", false)) fail(path, ": use_dora is not supported");
  } catch (const Json::exception& error) {
    fail(path, ": not a PEFT adapter configuration (", error.what(), ")");
  }
}

}  // namespace

AdapterLayout::AdapterLayout(const Bundle& bundle, const Program& program) {
  for (const UnitInfo& unit : bundle.units) {
    const UnitKind& kind = bundle.kinds[unit.kind];
    const std::string method = kind.name + "_forward";
    const size_t first = (kind.takes_positions ? 2 : 1) + unit.weights.size();
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
  size_t known = 0;
  for (const auto& unit : layout.units) {
    for (const AdapterTensor& tensor : unit) {
      const auto& view = file.get(tensor.name, "F32");
      if (view.shape != std::vector<int64_t>{tensor.rows, tensor.cols}) {
        fail(file.path(), ": tensor ", tensor.name, " has another shape than the bundle's [", tensor.rows, ", ",
             tensor.cols, "]");
      }
      if (!all_finite(view.data, tensor.size())) {
        fail(file.path(), ": tensor ", tensor.name, " holds numbers that are not finite");
      }
      std::memcpy(parameters + tensor.offset, view.data, view.bytes);
      ++known;
    }
  }
  if (file.tensors().size() != known) {
    for (const auto& [name, view] : file.tensors()) {
      const bool found = std::any_of(layout.units.begin(), layout.units.end(), [&name = name](const auto& unit) {
        return std::any_of(unit.begin(), unit.end(), [&](const AdapterTensor& t) { return t.name == name; });
      });
      if (!found) fail(file.path(), ": tensor ", name, " adapts a layer that the bundle does not");
    }
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
  // The same fields as mobile_ft/lora.py writes at export, so copy the bundle's own file.
  const std::string config = read_text(bundle.verified("adapter_config.json"), kMostJsonBytes);
  write_atomically(folder + kConfigFile, {{config.data(), config.size()}});
}

}  // namespace mft
