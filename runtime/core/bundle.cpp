#include "runtime/core/bundle.h"

#include <nlohmann/json.hpp>

#include "runtime/core/error.h"
#include "runtime/core/file.h"
#include "runtime/kernels/int8_blocks.h"

namespace mft {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 3;

int64_t positive(const Json& object, const char* key) {
  const int64_t value = object.at(key).get<int64_t>();
  if (value <= 0 || value > (int64_t{1} << 31)) fail(key, " is ", value);
  return value;
}

std::vector<SavedTensor> saved_tensors(const Json& entries) {
  std::vector<SavedTensor> saved;
  for (const Json& entry : entries) {
    const Json& shape = entry.at("shape");
    const std::string dtype = entry.at("dtype"), stored = entry.at("stored");
    SavedTensor tensor;
    tensor.token_dim = shape.size();
    if (stored == "float16" && dtype == "float32") {
      tensor.stored = Stored::kHalf;
    } else if (stored == "int8" && dtype == "float32") {
      tensor.stored = Stored::kInt8Blocks;
    } else if (stored != dtype) {
      fail("saved tensor of type ", dtype, " as ", stored);
    }
    if (dtype == "uint8") {
      tensor.item_bytes = 1;
    } else if (dtype != "float32") {
      fail("saved tensor of type ", dtype);
    }
    for (size_t d = 0; d < shape.size(); ++d) {
      const int64_t n = shape[d].get<int64_t>();
      if (n == -1) {
        tensor.token_dim = d;
      } else if (n > 0 && n < (int64_t{1} << 31) / tensor.values) {
        tensor.values *= n;
      } else {
        fail("saved tensor with dimension ", n);
      }
    }
    if (tensor.token_dim == shape.size()) fail("saved tensor without tokens");
    saved.push_back(tensor);
  }
  return saved;
}

void parse(const Json& json, Bundle& bundle) {
  const Json& model = json.at("model");
  bundle.model_name = model.at("name");
  bundle.hidden_size = positive(model, "hidden_size");
  bundle.intermediate_size = positive(model, "intermediate_size");
  bundle.num_layers = positive(model, "num_hidden_layers");
  bundle.num_heads = positive(model, "num_attention_heads");
  bundle.num_kv_heads = positive(model, "num_key_value_heads");
  bundle.head_dim = positive(model, "head_dim");
  bundle.vocab_size = positive(model, "vocab_size");
  bundle.max_seq_len = positive(json, "max_seq_len");
  bundle.mlp_tokens = positive(json, "mlp_tokens");
  bundle.head_tokens = positive(json, "head_tokens");
  bundle.lora_rank = positive(json.at("lora"), "rank");
  bundle.lora_alpha = json.at("lora").at("alpha");
  json.at("lora").at("targets").get_to(bundle.lora_targets);
  json.at("embed").at("weights").get_to(bundle.embed_weights);
  json.at("head").at("weights").get_to(bundle.head_weights);
  for (const Json& entry : json.at("units")) {
    UnitInfo unit;
    unit.name = entry.at("name");
    unit.kind = entry.at("kind");
    unit.attention = entry.at("type") == "attn";
    unit.layer = entry.at("layer");
    entry.at("weights").get_to(unit.weights);
    entry.at("lora").get_to(unit.lora);
    const Json& saved = json.at("saved").at(unit.kind);
    unit.saved = saved_tensors(saved.at("tensors"));
    unit.backward_reads_x = saved.at("reads_x");
    if (unit.layer < 0 || unit.layer >= bundle.num_layers) fail("unit ", unit.name, " has layer ", unit.layer);
    if (!bundle.units.empty() && unit.layer < bundle.units.back().layer) fail("unit ", unit.name, " is out of order");
    bundle.units.push_back(std::move(unit));
  }
  for (const auto& [method, tensors] : json.at("arena").items()) {
    auto& ranges = bundle.arena[method];
    for (const Json& tensor : tensors) {
      const ArenaTensor range{tensor.at(0).get<uint64_t>(), tensor.at(1).get<uint64_t>()};
      if (range.offset > UINT32_MAX * uint64_t{16} || range.bytes > UINT32_MAX * uint64_t{16}) {
        fail("method ", method, " has a tensor of ", range.bytes, " bytes at ", range.offset);
      }
      ranges.push_back(range);
    }
  }
  if (bundle.embed_weights.size() != 1 || bundle.head_weights.size() != 2) {
    fail("embed takes one weight and head two");
  }
  // Buffers are sized by units a layer, so no layer may have more than another.
  std::vector<size_t> count(static_cast<size_t>(bundle.num_layers));
  for (const UnitInfo& unit : bundle.units) ++count[static_cast<size_t>(unit.layer)];
  for (size_t n : count) {
    if (n == 0 || n != count[0]) fail("the layers have different numbers of units");
  }
}

void verify(const Json& checksums, Bundle& bundle) {
  for (const auto& [name, expected] : checksums.items()) {
    const std::string path = bundle.file(name);
    const Checksum found = checksum_file(path);
    if (found.size != expected.at("size").get<uint64_t>()) {
      fail(path, ": ", found.size, " bytes where bundle.json says ", expected.at("size"),
           "; it is truncated or was replaced, export the bundle again");
    }
    if (found.crc32 != expected.at("crc32").get<uint32_t>()) {
      fail(path, ": checksum differs from bundle.json; it is damaged or was edited, export the bundle again");
    }
    if (name == "weights.ptd") bundle.weights_crc32 = found.crc32;
  }
  for (const char* name : {"program.pte", "weights.ptd", "adapter_model.safetensors"}) {
    if (!checksums.contains(name)) fail(bundle.file("bundle.json"), ": no checksum for ", name);
  }
}

}  // namespace

size_t SavedTensor::stored_bytes(int64_t tokens) const {
  size_t size = bytes(tokens);
  if (stored == Stored::kHalf) size /= 2;
  if (stored == Stored::kInt8Blocks) size = static_cast<size_t>(int8_blocks(values * tokens)) * sizeof(Int8Block);
  return (size + 63) / 64 * 64;
}

Bundle::Bundle(const std::string& path) : folder(path) {
  const std::string index = file("bundle.json");
  if (!file_exists(index)) fail(index, ": no such file; ", path, " is not a bundle made by `mobile-ft export`");
  Json json;
  try {
    json = Json::parse(read_text(index));
    if (json.at("format") != "mobile-ft-bundle") fail("format is ", json.at("format"));
    if (json.at("version") != kVersion) {
      fail("version ", json.at("version"), ", this runtime reads version ", kVersion);
    }
    parse(json, *this);
  } catch (const Json::exception& error) {
    fail(index, ": not a valid bundle description (", error.what(), ")");
  } catch (const Error& error) {
    fail(index, ": not a valid bundle description (", error.what(), ")");
  }
  try {
    verify(json.at("checksums"), *this);
  } catch (const Json::exception& error) {
    fail(index, ": not a valid bundle description (", error.what(), ")");
  }
}

}  // namespace mft
