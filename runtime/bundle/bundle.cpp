#include "runtime/bundle/bundle.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/base/sha256.h"
#include "runtime/bundle/signature.h"
#include "runtime/kernels/storage/int4_blocks.h"
#include "runtime/kernels/storage/int8_blocks.h"

namespace mft {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 6;
constexpr double kMostFlops = 1e18;
constexpr double kMostLrFactor = 100;
// Limits far above any model, but low enough that products of sizes do not overflow.
constexpr int64_t kMostWidth = 1 << 20;
constexpr int64_t kMostVocabulary = 1 << 24;
constexpr int64_t kMostBytes = int64_t{1} << 44;

int64_t width(const Json& object, const char* key) { return integer(object, key, 1, kMostWidth); }
int64_t tokens(const Json& object) { return integer(object, "tokens", 1, kMostTokens); }

/// A number of operations, from which time is estimated.
double operations(const Json& value) {
  const double number = value.get<double>();
  if (!(number >= 0 && number <= kMostFlops)) fail("flops are ", number);
  return number;
}

Flops flops(const Json& pair) {
  if (pair.size() != 2) fail("flops must be two numbers");
  return {operations(pair.at(0)), operations(pair.at(1))};
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
    } else if (stored == "int4" && dtype == "float32") {
      tensor.stored = Stored::kInt4Blocks;
    } else if (stored != dtype) {
      fail("a saved tensor of type ", dtype, " cannot be stored as ", stored);
    }
    if (dtype == "uint8") {
      tensor.item_bytes = 1;
    } else if (dtype != "float32") {
      fail("a saved tensor has the unsupported type ", dtype);
    }
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] == -1) {
        tensor.token_dim = d;
        continue;
      }
      const int64_t n = shape[d].is_number_integer() ? shape[d].get<int64_t>() : 0;
      if (n <= 0 || n > kMostWidth * 16 / tensor.values) fail("a saved tensor has the invalid dimension ", shape[d]);
      tensor.values *= n;
    }
    if (tensor.token_dim == shape.size()) fail("a saved tensor has no token dimension");
    saved.push_back(tensor);
  }
  return saved;
}

/// Sets the sizes of a kind's linear layers and of its attention. Older bundles have only those of the model.
void set_shapes(const Json& entry, const Json& model, UnitKind& kind) {
  if (!entry.contains("linears")) {
    const int64_t hidden = width(model, "hidden_size"), inner = width(model, "intermediate_size");
    kind.heads = width(model, "num_attention_heads");
    kind.kv_heads = width(model, "num_key_value_heads");
    kind.head_dim = width(model, "head_dim");
    const int64_t queries = kind.heads * kind.head_dim;
    kind.linears = {{hidden, queries},
                    {hidden, kind.kv_heads * kind.head_dim},
                    {queries, hidden},
                    {hidden, inner},
                    {inner, hidden}};
    if (kind.state_size > 0) kind.linears.push_back({hidden, 3 * hidden});
    return;
  }
  for (const Json& shape : entry.at("linears")) {
    if (shape.size() != 2) fail("a linear layer must have two sizes");
    const Json sizes = {{"in_features", shape.at(0)}, {"out_features", shape.at(1)}};
    kind.linears.push_back({width(sizes, "in_features"), width(sizes, "out_features")});
  }
  if (const Json& attention = entry.at("attention"); !attention.is_null()) {
    kind.heads = width(attention, "heads");
    kind.kv_heads = width(attention, "kv_heads");
    kind.head_dim = width(attention, "head_dim");
  }
  if (const auto delta = entry.find("delta_net"); delta != entry.end() && !delta->is_null()) {
    kind.delta_net.key_heads = width(*delta, "key_heads");
    kind.delta_net.key_dim = width(*delta, "key_dim");
    kind.delta_net.heads = width(*delta, "heads");
    kind.delta_net.value_dim = width(*delta, "value_dim");
    kind.delta_net.taps = width(*delta, "taps");
  }
  if (const auto experts = entry.find("experts"); experts != entry.end() && !experts->is_null()) {
    kind.experts.experts = width(*experts, "experts");
    kind.experts.top_k = integer(*experts, "top_k", 1, kind.experts.experts);
    kind.experts.hidden = width(*experts, "hidden");
    kind.experts.inner = width(*experts, "inner");
    if (experts->contains("rank")) kind.experts.rank = width(*experts, "rank");
  }
  if (const auto mamba = entry.find("mamba2"); mamba != entry.end() && !mamba->is_null()) {
    kind.mamba2.groups = width(*mamba, "groups");
    kind.mamba2.state = width(*mamba, "state");
    kind.mamba2.heads = width(*mamba, "heads");
    kind.mamba2.dim = width(*mamba, "dim");
    kind.mamba2.taps = width(*mamba, "taps");
    if (kind.mamba2.heads % kind.mamba2.groups != 0) fail("the groups of a Mamba-2 layer must divide its heads");
  }
}

/// Older bundles have no entries for what a kind has besides x.
void set_side(const Json& entry, const PerLayer& per_layer, UnitKind& kind) {
  const auto side = entry.find("side");
  if (side == entry.end() || side->is_null()) return;
  const std::map<std::string, Side> sides = {
      {"gives", Side::kGives}, {"takes", Side::kTakes}, {"per_layer", Side::kPerLayer}};
  const auto found = sides.find(side->get<std::string>());
  if (found == sides.end()) fail("a unit has the unknown side ", *side);
  kind.side = found->second;
  const auto widths = entry.at("side_widths").get<std::vector<int64_t>>();
  const bool embedding = kind.side == Side::kPerLayer;
  if (widths.size() != (embedding ? 1 : 2) || widths.front() != widths.back() || widths[0] < 1 ||
      widths[0] > kMostWidth || (embedding && widths[0] != per_layer.width)) {
    fail("side_widths ", entry.at("side_widths"), " do not fit ", *side);
  }
  kind.side_width = widths[0];
}

PerLayer parse_per_layer(const Json& json) {
  PerLayer per_layer;
  const auto entry = json.find("per_layer");
  if (entry == json.end() || entry->is_null()) return per_layer;
  per_layer.width = width(*entry, "width");
  per_layer.tokens = tokens(*entry);
  entry->at("weights").get_to(per_layer.weights);
  if (per_layer.weights.size() != 3) fail("per_layer must have three weights");
  return per_layer;
}

UnitKind unit_kind(const std::string& name, const Json& entry, const Json& model, const Bundle& bundle) {
  UnitKind kind;
  kind.name = name;
  kind.tokens = tokens(entry);
  kind.takes_positions = entry.at("takes_positions");
  kind.cache_width = integer(entry, "cache_width", 0, kMostWidth);
  kind.state_size = integer(entry, "state_size", 0, kMostWidth * 16);
  kind.flops = flops(entry.at("flops"));
  kind.recompute_flops = flops(entry.at("recompute_flops"));
  kind.saved = saved_tensors(entry.at("saved"));
  kind.backward_reads_x = entry.at("reads_x");
  set_shapes(entry, model, kind);
  set_side(entry, bundle.per_layer, kind);
  const int64_t kept = kind.side == Side::kTakes ? kind.side_width : kind.cache_width;
  if (kept > 0 && kept != kind.kv_heads * kind.head_dim) {
    fail(name, ": keys of ", kept, " values do not fit ", kind.kv_heads, " heads of ", kind.head_dim);
  }
  // A unit that mixes tokens cannot be split over several calls.
  if ((kind.takes_positions || kind.decodes()) && kind.tokens < bundle.max_seq_len)
    fail(name, " must take at least max_seq_len tokens");
  return kind;
}

/// The size of a file or of a part of it.
uint64_t bytes(const Json& object, const char* key) {
  return static_cast<uint64_t>(integer(object, key, 0, kMostBytes));
}

FileChecksum file_checksum(const Json& entry) { return {bytes(entry, "size"), entry.at("sha256")}; }

/// Returns the name if it is a file of the folder itself, not a path that leads out of it.
void check_plain(const std::string& name) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
      name.find('\0') != std::string::npos) {
    fail("\"", name, "\" is not the name of a file in the bundle");
  }
}

void parse_model(const Json& json, Bundle& bundle) {
  const Json& model = json.at("model");
  bundle.model_name = model.at("name");
  bundle.hidden_size = width(model, "hidden_size");
  bundle.num_layers = width(model, "num_hidden_layers");
  bundle.vocab_size = integer(model, "vocab_size", 1, kMostVocabulary);
  bundle.max_seq_len = integer(json, "max_seq_len", 1, kMostTokens);
  bundle.head_tokens = tokens(json.at("head"));
  bundle.head_flops = operations(json.at("head").at("flops"));
  const Json& lora = json.at("lora");
  bundle.lora_rank = width(lora, "rank");
  bundle.lora_alpha = lora.at("alpha");
  if (!(bundle.lora_alpha > 0) || !std::isfinite(bundle.lora_alpha)) fail("lora alpha is ", bundle.lora_alpha);
  bundle.lora_rslora = lora.at("use_rslora");
  lora.at("targets").get_to(bundle.lora_targets);
  bundle.lr_factor = json.value("lr_factor", 1.0);  // older bundles do not have it
  if (!(bundle.lr_factor > 0 && bundle.lr_factor <= kMostLrFactor)) fail("lr_factor is ", bundle.lr_factor);
  json.at("embed").at("weights").get_to(bundle.embed_weights);
  json.at("head").at("weights").get_to(bundle.head_weights);
  if (bundle.embed_weights.size() != 1 || bundle.head_weights.size() != 2) {
    fail("embed must have one weight and head two");
  }
}

/// The index of the unit whose keys and values a unit takes.
size_t giver_of(const Json& entry, const Bundle& bundle, const UnitInfo& unit) {
  const std::string name = entry.at("takes");
  for (size_t u = 0; u < bundle.units.size(); ++u) {
    const UnitKind& kind = bundle.kind_of(u);
    if (bundle.units[u].name == name && kind.side == Side::kGives &&
        kind.side_width == bundle.kinds[unit.kind].side_width) {
      return u;
    }
  }
  fail("unit ", unit.name, " takes keys and values of ", name, ", which does not give them");
}

void parse_units(const Json& json, Bundle& bundle) {
  std::map<std::string, size_t> kinds;
  bundle.per_layer = parse_per_layer(json);
  for (const auto& [name, entry] : json.at("kinds").items()) {
    kinds[name] = bundle.kinds.size();
    bundle.kinds.push_back(unit_kind(name, entry, json.at("model"), bundle));
  }
  for (const Json& entry : json.at("units")) {
    UnitInfo unit;
    unit.name = entry.at("name");
    const auto kind = kinds.find(entry.at("kind").get<std::string>());
    if (kind == kinds.end()) fail("unit ", unit.name, " has the unknown kind ", entry.at("kind"));
    unit.kind = kind->second;
    unit.layer = integer(entry, "layer", 0, kMostWidth);
    entry.at("weights").get_to(unit.weights);
    entry.at("lora").get_to(unit.lora);
    if (const auto scale = entry.find("scale"); scale != entry.end() && !scale->is_null()) scale->get_to(unit.scale);
    if (bundle.kinds[unit.kind].side == Side::kTakes) unit.giver = giver_of(entry, bundle, unit);
    const int64_t before = bundle.units.empty() ? 0 : bundle.units.back().layer;
    if (unit.layer < before || unit.layer > before + 1 || unit.layer >= bundle.num_layers) {
      fail("unit ", unit.name, " of layer ", unit.layer, " is out of order");
    }
    bundle.units.push_back(std::move(unit));
  }
  if (bundle.units.empty() || bundle.units.back().layer + 1 != bundle.num_layers || bundle.units.front().layer != 0) {
    fail("the units do not form ", bundle.num_layers, " layers");
  }
}

void parse_checksums(const Json& json, Bundle& bundle) {
  for (const auto& [name, entry] : json.at("checksums").items()) {
    check_plain(name);
    bundle.files[name] = file_checksum(entry);
  }
  for (const char* name : {"program.pte", "adapter_model.safetensors", "adapter_config.json"}) {
    if (bundle.files.count(name) == 0) fail("the checksum of ", name, " is missing");
  }
  const Json& weights = json.at("weights");
  bundle.weights.size = bytes(weights, "size");
  bundle.weights.index = {bytes(weights, "index_size"), weights.at("index_sha256")};
  weights.at("sha256").get_to(bundle.weights.sha256);
  Sha256 id;
  const std::string text = weights.dump();
  id.update(text.data(), text.size());
  bundle.weights_id = id.hex();
}

void check_size(const std::string& path, uint64_t expected) {
  const uint64_t found = file_size(path);
  if (found != expected) {
    fail(path, ": has ", found, " bytes, but bundle.json lists ", expected,
         "; the file is truncated or was replaced; export the bundle again");
  }
}

}  // namespace

size_t SavedTensor::stored_bytes(int64_t tokens) const {
  const auto size = [&]() -> size_t {
    switch (stored) {
      case Stored::kHalf:
        return bytes(tokens) / 2;
      case Stored::kInt8Blocks:
        return static_cast<size_t>(int8_blocks(values * tokens)) * sizeof(Int8Block);
      case Stored::kInt4Blocks:
        return static_cast<size_t>(int4_blocks(values * tokens)) * sizeof(Int4Block);
      case Stored::kAsIs:
        break;
    }
    return bytes(tokens);
  };
  return (size() + 63) / 64 * 64;
}

Bundle::Bundle(const std::string& path) : folder(path) {
  const std::string index = file("bundle.json");
  if (!file_exists(index)) fail(index, ": no such file; ", path, " is not a bundle written by `mobile-ft export`");
  const std::string text = read_text(index, kMostJsonBytes);
  check_signature(index, text);  // checked before its content is used; other files are verified by its checksums
  const Json json = parse_json<Json>(text, index + ": not a valid bundle description");
  try {
    if (json.at("format") != "mobile-ft-bundle") fail("format is ", json.at("format"));
    if (json.at("version") != kVersion) {
      fail("version ", json.at("version"), ", this runtime reads version ", kVersion);
    }
    parse_model(json, *this);
    parse_units(json, *this);
    parse_checksums(json, *this);
  } catch (const Json::exception& error) {
    fail(index, ": not a valid bundle description (", error.what(), ")");
  } catch (const Error& error) {
    fail(index, ": not a valid bundle description (", error.what(), ")");
  }
  for (const auto& [name, checksum] : files) check_size(file(name), checksum.size);
  check_size(file("weights.ptd"), weights.size);
}

std::string Bundle::verified(const std::string& name) const {
  const std::string path = file(name);
  const auto found = files.find(name);
  if (found == files.end()) fail(path, ": not part of the bundle; export a model with a tokenizer");
  const FileChecksum& expected = found->second;
  check_size(path, expected.size);
  if (sha256_of_file(path, expected.size) != expected.sha256) {
    fail(path, ": the checksum does not match bundle.json; the file is damaged or was edited; export the bundle again");
  }
  return path;
}

bool Bundle::has_side_tensors() const {
  return std::any_of(kinds.begin(), kinds.end(), [](const UnitKind& kind) { return kind.side != Side::kNone; });
}

bool Bundle::has_experts() const {
  return std::any_of(kinds.begin(), kinds.end(), [](const UnitKind& kind) { return kind.experts.experts > 0; });
}

bool Bundle::rounds_what_it_stores() const {
  return std::any_of(kinds.begin(), kinds.end(), [](const UnitKind& kind) {
    return std::any_of(kind.saved.begin(), kind.saved.end(), [](const SavedTensor& t) { return t.converted(); });
  });
}

}  // namespace mft
