#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mft {

/// A tensor that `<kind>_forward_save` hands to `<kind>_backward`: `values` floats a token, the tokens in dimension
/// `token_dim`.
struct SavedTensor {
  int64_t values;
  size_t token_dim;
};

/// One residual unit, as listed in bundle.json.
struct UnitInfo {
  std::string name;        // "layers.0.attn"
  std::string kind;        // prefix of its methods' names
  bool attention = false;  // else an MLP
  int64_t layer = 0;
  std::vector<std::string> weights;  // names in weights.ptd, in the order of the methods' inputs
  std::vector<std::string> lora;     // names in the adapter file, likewise
  std::vector<SavedTensor> saved;
};

/// A training bundle: bundle.json parsed, and every file's size and checksum verified (docs/bundle_format.md).
struct Bundle {
  /// Throws Error naming the file that is missing, truncated, edited or of another version.
  explicit Bundle(const std::string& folder);

  std::string file(const std::string& name) const { return folder + "/" + name; }

  std::string folder;
  std::string model_name;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  int64_t max_seq_len = 0;
  int64_t lora_rank = 0;
  double lora_alpha = 0;
  std::vector<std::string> lora_targets;
  std::vector<UnitInfo> units;
  std::vector<std::string> embed_weights;
  std::vector<std::string> head_weights;
  uint32_t weights_crc32 = 0;  // identifies the model in checkpoints
};

}  // namespace mft
